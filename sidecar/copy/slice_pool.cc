#include "sidecar/copy/slice_pool.h"

#include <algorithm>

namespace gantry::transport {

SliceLease& SliceLease::operator=(SliceLease&& other) noexcept {
  if (this == &other) return *this;
  Release();
  pool_ = std::exchange(other.pool_, nullptr);
  slices_ = std::exchange(other.slices_, {});
  return *this;
}

void SliceLease::Release() {
  if (pool_ == nullptr) return;
  std::exchange(pool_, nullptr)->GiveBack(std::exchange(slices_, {}));
}

SlicePool::SlicePool(uint32_t slices) : size_(slices) {
  const MutexLock lock(mutex_);
  for (uint32_t slice = slices; slice > 0; --slice) free_.push_back(slice - 1);
}

std::vector<uint32_t> SlicePool::TakeFree(size_t count) {
  std::vector<uint32_t> taken(free_.rbegin(), free_.rbegin() + static_cast<ptrdiff_t>(count));
  free_.resize(free_.size() - count);
  in_use_ += count;
  return taken;
}

std::optional<SliceLease> SlicePool::Take(size_t count, Granted later, uint64_t* ticket) {
  const MutexLock lock(mutex_);
  if (waiters_.empty() && free_.size() >= count) return SliceLease(this, TakeFree(count));
  if (ticket != nullptr) *ticket = next_ticket_;
  waiters_.push_back({next_ticket_++, count, std::move(later)});
  return std::nullopt;
}

SliceLease SlicePool::TakeAtOnce(size_t most) {
  const MutexLock lock(mutex_);
  if (!waiters_.empty()) return {};
  return {this, TakeFree(std::min(most, free_.size()))};
}

void SlicePool::Cancel(uint64_t ticket) {
  Granted dropped;
  Grants grants;
  {
    const MutexLock lock(mutex_);
    const auto found = std::find_if(waiters_.begin(), waiters_.end(),
                                    [&](const Waiter& waiter) { return waiter.ticket == ticket; });
    if (found == waiters_.end()) return;
    dropped = std::move(found->granted);
    waiters_.erase(found);
    grants = GrantThoseWhoCan();
  }
  for (auto& [call, lease] : grants) call(std::move(lease));
}

SlicePool::Grants SlicePool::GrantThoseWhoCan() {
  Grants grants;
  while (!waiters_.empty() && waiters_.front().count <= free_.size()) {
    Waiter waiter = std::move(waiters_.front());
    waiters_.pop_front();
    grants.emplace_back(std::move(waiter.granted), SliceLease(this, TakeFree(waiter.count)));
  }
  return grants;
}

void SlicePool::GiveBack(const std::vector<uint32_t>& slices) {
  Grants grants;
  {
    const MutexLock lock(mutex_);
    free_.insert(free_.end(), slices.rbegin(), slices.rend());
    in_use_ -= slices.size();
    grants = GrantThoseWhoCan();
  }
  for (auto& [call, lease] : grants) call(std::move(lease));
}

}  // namespace gantry::transport
