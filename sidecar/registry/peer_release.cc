#include "sidecar/registry/peer_release.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace gantry::registry {

std::string_view NameOf(PeerOutcome outcome) {
  switch (outcome) {
    case PeerOutcome::kDrained:
      return "drained";
    case PeerOutcome::kGone:
      return "gone";
    case PeerOutcome::kRefused:
      return "refused";
    case PeerOutcome::kCutOff:
      return "cut_off";
    case PeerOutcome::kHolding:
      break;
  }
  return "holding";
}

std::vector<PeerRelease> Summary(const std::vector<std::vector<PeerRelease>>& of_buffers) {
  std::map<std::tuple<std::string, uint64_t, wire::Path>, PeerOutcome> worst;
  for (const auto& releases : of_buffers) {
    for (const PeerRelease& release : releases) {
      const auto entry = worst.emplace(
          std::make_tuple(release.peer, release.generation, release.path), release.outcome);
      entry.first->second = std::max(entry.first->second, release.outcome);
    }
  }
  std::vector<PeerRelease> summary;
  summary.reserve(worst.size());
  for (const auto& [key, outcome] : worst) {
    summary.push_back({std::get<0>(key), std::get<1>(key), std::get<2>(key), outcome});
  }
  return summary;
}

std::vector<std::string> PeersThat(PeerOutcome outcome, const std::vector<PeerRelease>& releases) {
  std::vector<std::string> names;
  for (const PeerRelease& release : releases) {
    if (release.outcome == outcome) names.push_back(release.peer);
  }
  return names;
}

}  // namespace gantry::registry
