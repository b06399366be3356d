// Settings of the peer API over TCP, of the connections that carry bytes between peers, and of the
// rdma transport.
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

constexpr std::string_view kNics[] = {"nearest", "all"};
constexpr uint32_t kMtus[] = {0, 256, 512, 1024, 2048, 4096};

constexpr Setting kDevices[] = {
    {"--no-rdma", &Config::no_rdma, kNormal, kUnbounded,
     "Use no RDMA device. Set it where registrations fail for want of locked memory."},
    {"--rdma-devices", &Config::rdma_devices, kNormal, kUnbounded,
     "Names of the RDMA devices to use, with commas between (mlx5_0,mlx5_2). Each needs an active "
     "port, or the sidecar does not start.",
     "those with an active port, of the device plugin's slot where there is one"},
    {"--rdma-nics", &Config::rdma_nics, kTuning, Words(kNics),
     "Devices that a buffer is registered on: those nearest to its memory, or all. Set all where "
     "rails are not joined by a spine."},
    {"--rdma-port", &Config::rdma_port, kTuning, Range{1, 254}, "Port of each device."},
    {"--rdma-gid-index", &Config::rdma_gid_index, kTuning, Range{-1, 255},
     "Index of the GID of each device. Set it where peers do not reach the one that the log names.",
     "RoCE v2 with an IPv4 address first, and for each peer the one in its subnet"},
};

constexpr Setting kQueuePairs[] = {
    {"--rdma-queue-pairs", &Config::rdma_queue_pairs, kTuning, Range{1, 16},
     "Queue pairs to each peer for each device. With all devices together at most 256, or the "
     "sidecar does not start."},
    {"--rdma-work-requests", &Config::rdma_work_requests, kExpert, Range{4, 8192},
     "Work requests in flight in each queue pair, within the limit of the device."},
    {"--rdma-slice-bytes", &Config::rdma_slice_bytes, kExpert, Range{4096, int64_t{1} << 30},
     "Bytes of the largest work request. Smaller ones spread a transfer better over devices, and "
     "end sooner when it is stopped."},
    {"--rdma-inline-bytes", &Config::rdma_inline_bytes, kExpert, Range{0, 1024},
     "Writes of host memory up to this many bytes are posted inline, for lower latency. Leave it "
     "at 0 where workloads punch holes into memory."},
    {"--rdma-chunk-bytes", &Config::rdma_chunk_bytes, kExpert, kCount,
     "Bytes of the largest memory region, 4096 at least. Set it for a device that refuses the size "
     "that it tells.",
     "as the devices tell"},
    {"--rdma-timeout", &Config::rdma_timeout, kExpert, Range{1, 31},
     "Local ACK timeout of the queue pairs: 4.096 us * 2^timeout. 14 is 67 ms."},
    {"--rdma-retries", &Config::rdma_retries, kExpert, Range{0, 7},
     "Retries until a peer's device that does not answer is lost. With soft-RoCE 7 may stand for "
     "ever."},
    {"--rdma-relaxed-ordering", &Config::rdma_relaxed_ordering, kTuning, kUnbounded,
     "Let devices write memory of the host in any order within a transfer. It is faster on some "
     "PCIe."},
};

constexpr Setting kPackets[] = {
    {"--rdma-mtu", &Config::rdma_mtu, kExpert, Numbers(kMtus),
     "Bytes of the largest payload of a packet, within the port's active MTU. Set it where a "
     "network drops packets as large as its ports take.",
     "the active MTU of the port"},
    {"--rdma-traffic-class", &Config::rdma_traffic_class, kTuning, Range{0, 255},
     "Traffic class of the packets, by which the fabric controls the flow (PFC, ECN)."},
    {"--rdma-service-level", &Config::rdma_service_level, kTuning, Range{0, 15},
     "Service level of the packets, by which InfiniBand chooses its lanes."},
    {"--rdma-hop-limit", &Config::rdma_hop_limit, kExpert, Range{1, 255},
     "Hop limit of the packets on InfiniBand. For RoCE Linux takes that of its route "
     "(net.ipv4.ip_default_ttl)."},
};

constexpr Group kRdmaGroups[] = {
    {"RDMA devices", kDevices}, {"RDMA queue pairs", kQueuePairs}, {"RDMA packets", kPackets}};

}  // namespace

std::span<const Group> PeerSettings() { return kPeerGroups; }

std::span<const Group> RdmaSettings() { return kRdmaGroups; }

}  // namespace gantry::settings
