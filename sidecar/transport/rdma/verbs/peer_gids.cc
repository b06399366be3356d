#include "sidecar/transport/rdma/verbs/peer_gids.h"

#include <ifaddrs.h>
#include <netinet/in.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "lib/base/log.h"

namespace gantry::transport {
namespace {

int OnesOf(const uint8_t* bytes, size_t count) {
  int ones = 0;
  for (size_t i = 0; i < count; ++i) ones += std::popcount(bytes[i]);
  return ones;
}

}  // namespace

std::map<Gid, int> PrefixLengths() {
  std::map<Gid, int> lengths;
  ifaddrs* asked = nullptr;
  if (::getifaddrs(&asked) != 0) return lengths;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> all(asked, ::freeifaddrs);
  for (const ifaddrs* one = all.get(); one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_netmask == nullptr) continue;
    Gid gid = {};
    if (one->ifa_addr->sa_family == AF_INET) {
      const auto& address = reinterpret_cast<const sockaddr_in&>(*one->ifa_addr).sin_addr;
      const auto& mask = reinterpret_cast<const sockaddr_in&>(*one->ifa_netmask).sin_addr;
      gid[10] = gid[11] = 0xff;
      std::memcpy(gid.data() + 12, &address, sizeof(address));
      lengths[gid] = OnesOf(reinterpret_cast<const uint8_t*>(&mask), sizeof(mask));
    } else if (one->ifa_addr->sa_family == AF_INET6) {
      const auto& address = reinterpret_cast<const sockaddr_in6&>(*one->ifa_addr).sin6_addr;
      const auto& mask = reinterpret_cast<const sockaddr_in6&>(*one->ifa_netmask).sin6_addr;
      std::memcpy(gid.data(), &address, sizeof(address));
      lengths[gid] = OnesOf(mask.s6_addr, sizeof(mask.s6_addr));
    }
  }
  return lengths;
}

Result<GidEntry> PeerGids::For(const Gid& peer) {
  if (is_named_ || peer == Gid{}) return first_;
  std::vector<GidEntry> gids = device_.Gids();
  const std::map<Gid, int> lengths = PrefixLengths();
  for (GidEntry& entry : gids) {
    const auto known = lengths.find(entry.gid);
    if (entry.prefix_length < 0 && known != lengths.end()) entry.prefix_length = known->second;
  }
  auto chosen = ChooseGid(gids, {-1, peer, first_.gid});
  if (!chosen) return Fail(std::move(chosen).error().WithContext(device_.name()));
  const auto entry = std::find_if(
      gids.begin(), gids.end(), [&](const GidEntry& each) { return each.index == chosen->index; });
  if (entry->gid != first_.gid) Say(peer, *chosen);
  return *entry;
}

void PeerGids::Say(const Gid& peer, const GidChoice& chosen) {
  {
    const MutexLock lock(mutex_);
    if (said_.size() == kSaidMax) said_.clear();
    if (!said_.insert(peer).second) return;
  }
  log::Info("queue pairs to a peer have another GID than the device's first",
            {{"device", device_.name()},
             {"peer_gid", TextOf(peer)},
             {"gid_index", chosen.index},
             {"gid", chosen.reason},
             {"first", TextOf(first_.gid)}});
}

}  // namespace gantry::transport
