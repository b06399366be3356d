#include "sidecar/peer/identity/peer_address.h"

#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

namespace gantry::peer {
namespace {

constexpr std::string_view kUnixScheme = "unix:";
constexpr size_t kSocketPathBytesMax = 107;  // of sockaddr_un, with the final 0

}  // namespace

Result<PeerAddress> ParsePeerAddress(std::string_view address) {
  PeerAddress parsed;
  if (address.starts_with(kUnixScheme)) {
    const std::string_view path = address.substr(kUnixScheme.size());
    if (path.starts_with('/') && path.size() <= kSocketPathBytesMax &&
        path.find('\0') == std::string_view::npos) {
      parsed.socket_path = path;
      return parsed;
    }
    return Fail(ErrorCode::kInvalidArgument,
                "'" + std::string(address) + "' is no socket's address",
                "an absolute path of at most 107 bytes", "/address");
  }
  auto tcp = ParseHostPort(address);
  if (tcp && tcp->port != 0) {
    parsed.tcp = *std::move(tcp);
    return parsed;
  }
  return Fail(ErrorCode::kInvalidArgument, "'" + std::string(address) + "' is no address of a peer",
              "unix:<node directory>/<name>.peer.sock on the same node; else host:port, with an "
              "IPv6 address in brackets",
              "/address");
}

std::string NodeSocket(std::string_view node_dir, std::string_view name) {
  return std::string(node_dir) + "/" + std::string(name) + ".peer.sock";
}

std::string AddressOnThisNode(std::string_view node_dir, std::string_view name) {
  if (node_dir.empty()) return {};
  const std::string path = NodeSocket(node_dir, name);
  std::error_code ignored;
  if (!std::filesystem::is_socket(path, ignored)) return {};
  return std::string(kUnixScheme) + path;
}

}  // namespace gantry::peer
