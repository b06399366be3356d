#include "sidecar/peer/identity/peer_identity.h"

#include <fstream>

namespace gantry::peer {

Result<std::string> ReadNodeId() {
  constexpr char kBootId[] = "/proc/sys/kernel/random/boot_id";
  std::ifstream file(kBootId);
  std::string id;
  if (!(file >> id) || id.empty() || id.size() > 128) {
    return Fail(ErrorCode::kInternal, std::string(kBootId) + " cannot be read");
  }
  return id;
}

std::vector<wire::PathReport> PathsBetween(const PeerIdentity& self, const PeerIdentity& initiator,
                                           bool over_tcp,
                                           const std::vector<wire::PathReport>& local) {
  std::vector<wire::PathReport> paths;
  for (const wire::Path path : wire::kPaths) {
    wire::PathReport report = {path, false,
                               "this build has no " + std::string(NameOf(path)) + " transport"};
    for (const wire::PathReport& mine : local) {
      if (mine.path == path) report = mine;
    }
    const bool shares_memory = InfoOf(path).shares_memory;
    if (shares_memory && self.node_id != initiator.node_id) {
      report.available = false;
      report.reason = "the sidecars run on different machines (boot ids differ)";
    } else if (shares_memory && over_tcp) {
      report.available = false;
      report.reason = wire::kReachedOverTcp;
    }
    paths.push_back(std::move(report));
  }
  return paths;
}

}  // namespace gantry::peer
