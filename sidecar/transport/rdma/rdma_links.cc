#include "sidecar/transport/rdma/rdma_links.h"

#include <algorithm>
#include <utility>

namespace gantry::transport {
namespace {

constexpr milliseconds kLeftOutMin{250};  // until what failed is tried again
constexpr milliseconds kLeftOutMax{30'000};
constexpr int kTimesMax = 3;  // that it failed, in a row, and work that has no other waits for it

}  // namespace

// The peer's device of the same place serves the same rail.
RdmaLinks::RdmaLinks(const RdmaDevices& devices, size_t peer_devices) : devices_(devices) {
  for (size_t device = 0; peer_devices != 0 && device < devices.size(); ++device) {
    straight_.push_back({device, static_cast<uint32_t>(device % peer_devices)});
  }
}

std::vector<RdmaLink> RdmaLinks::all() const {
  std::vector<RdmaLink> all = straight_;
  all.insert(all.end(), crossings_.begin(), crossings_.end());
  return all;
}

size_t RdmaLinks::CrossingsMax() const {
  const size_t links = wire::kQueuePairsMax / static_cast<size_t>(devices_.options().queue_pairs);
  return std::max(links, straight_.size()) - straight_.size();
}

Result<bool> RdmaLinks::AddCrossing(DeviceSet here, DeviceSet there) {
  const std::vector<uint32_t> up = (here & devices_.Up()).List();
  const std::vector<uint32_t> peers = there.List();
  if (up.empty()) return Fail(devices_.NoneUpOf(here));
  const size_t most = CrossingsMax();
  const size_t count = std::max<size_t>(1, std::min(most, std::max(up.size(), peers.size())));
  std::set<RdmaLink> needed;
  std::set<RdmaLink> crossing;
  bool any_new = false;
  for (size_t i = 0; i < count; ++i) {
    const RdmaLink link = {up[i % up.size()], peers[i % peers.size()]};
    needed.insert(link);
    if (std::find(straight_.begin(), straight_.end(), link) != straight_.end()) continue;
    crossing.insert(link);
    any_new |= !crossings_.contains(link);
  }
  if (any_new) {
    if (most == 0) {
      return Fail(ErrorCode::kPathUnavailable,
                  "the buffers' RDMA devices have other places here than at the peer, and there "
                  "are no queue pairs left to join them",
                  "lower --rdma-queue-pairs");
    }
    if (crossings_.size() + crossing.size() > most) DropCrossings();
    crossings_.merge(crossing);
    return true;
  }
  for (const RdmaLink& link : needed) {
    const auto left_out = left_out_.find(link);
    if (left_out == left_out_.end() || left_out->second.times < kTimesMax) return false;
  }
  const Error& why = left_out_.at(*needed.begin()).why;
  return Fail(Error(why).WithContext("no RDMA device that has the buffer is joined with the peer"));
}

RdmaLinks::Noted RdmaLinks::LeaveOut(const RdmaLink& link, const Error& why, TimePoint now) {
  const auto [noted, is_new] = left_out_.try_emplace(link, LeftOut{.why = why});
  LeftOut& left_out = noted->second;
  ++left_out.times;
  left_out.backoff = std::clamp(2 * left_out.backoff, kLeftOutMin, kLeftOutMax);
  left_out.again_at = now + left_out.backoff;
  return {is_new, left_out.again_at};
}

bool RdmaLinks::Rests(const RdmaLink& link, TimePoint now) const {
  const auto left_out = left_out_.find(link);
  return left_out != left_out_.end() && now < left_out->second.again_at;
}

}  // namespace gantry::transport
