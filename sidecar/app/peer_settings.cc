// Settings of the peer API over TCP and of the connections that carry bytes between peers.
#include "sidecar/app/settings.h"

namespace gantry::settings {
namespace {

using enum Level;
using Config = SidecarConfig;

constexpr Setting kPeerApi[] = {
    {"--peer-listen", &Config::peer_listen, kNormal, kUnbounded,
     "The address:port of the peer API over TCP. Beyond loopback it needs certificates, or a token "
     "and --peer-plaintext.",
     "none, and peers are in the node directory alone"},
    {"--peer-tls-cert", &Config::peer_tls_cert, kNormal, kUnbounded,
     "PEM file of the certificate that peers are shown, then its intermediates. It has to allow "
     "client and server authentication.",
     "none"},
    {"--peer-tls-key", &Config::peer_tls_key, kNormal, kUnbounded,
     "PEM file of the private key of --peer-tls-cert, without a passphrase.", "none"},
    {"--peer-tls-ca", &Config::peer_tls_ca, kNormal, kUnbounded,
     "PEM file of the authorities that sign peers' certificates. Each certificate in it is "
     "trusted.",
     "none"},
    {"--peer-tls-names", &Config::peer_tls_names, kNormal, kUnbounded,
     "Patterns with commas between, in which * stands for anything. A peer's certificate needs a "
     "URI, DNS or IP name that matches one.",
     "the certificate has to be for the host in the peer's address"},
    {"--peer-rules", &Config::peer_rules, kNormal, kUnbounded,
     "File of lines 'certificate-name workloads read,write', which say what each peer may access.",
     "each certificate may have what the buffers grant"},
    {"--peer-token-file", &Config::peer_token_file, kNormal, kUnbounded,
     "File of the token that the peers of one trust domain share, 16 characters or more. With "
     "several lines the first is shown, and each is taken.",
     "none"},
    {"--peer-plaintext", &Config::peer_plaintext, kNormal, kUnbounded,
     "Let the token travel unencrypted beyond loopback. Set it only in a network that others "
     "cannot read."},
};

constexpr Setting kDataConnections[] = {
    {"--data-listen", &Config::data_listen, kNormal, kUnbounded,
     "The address:port of the connections that carry bytes between peers. Name a port where a "
     "firewall or a network policy stands between.",
     "the address of --peer-listen at a free port, which peers learn over the peer API"},
    {"--data-host", &Config::data_host, kNormal, kUnbounded,
     "Host that peers connect to for bytes. Set it where that is not the host of the peer API.",
     "the address at which they reached the peer API"},
    {"--data-streams", &Config::data_streams, kTuning, Range{1, 32},
     "Connections to each peer over TCP. Raise it where these do not fill a link."},
    {"--data-threads", &Config::data_threads, kTuning, Range{0, 32},
     "Threads that move the bytes of all connections. Set it where the sidecar may use fewer "
     "processors than the node has.",
     "one for each connection to a peer, within half of the processors, and two at least"},
    {"--data-tls", &Config::data_tls, kNormal, kUnbounded,
     "Encrypt the bytes that go over TCP, with the certificates of the peer API. Peers that do not "
     "encrypt are refused."},
    {"--data-no-checksum", &Config::data_no_checksum, kExpert, kUnbounded,
     "Leave out the CRC32C over the bytes that go over TCP, to save processor time. Headers and "
     "ranges keep theirs."},
    {"--staging-bytes", &Config::staging_bytes, kTuning, Range{0, int64_t{1} << 36},
     "Bytes of host memory, 8 MiB at least, through which memory of GPUs goes over the network. "
     "Raise it for many peers; 0 closes tcp and bounce to GPU memory."},
};

constexpr Group kPeerGroups[] = {{"Peer API over TCP", kPeerApi},
                                 {"Bytes over TCP", kDataConnections}};

}  // namespace

std::span<const Group> PeerSettings() { return kPeerGroups; }

}  // namespace gantry::settings
