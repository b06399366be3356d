#include "sidecar/transport/rdma/verbs/touch_pages.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>
#include <utility>

#include "lib/base/mutex.h"
#include "lib/base/thread.h"
#include "sidecar/memory/host_memory.h"

namespace gantry::transport {
namespace {

constexpr uint64_t kSliceBytes = uint64_t{64} << 20;

std::vector<TouchRange> SlicesOf(const std::vector<TouchRange>& ranges) {
  std::vector<TouchRange> slices;
  for (const TouchRange& range : ranges) {
    for (size_t offset = 0; offset < range.bytes.size(); offset += kSliceBytes) {
      const size_t length = std::min<size_t>(kSliceBytes, range.bytes.size() - offset);
      slices.push_back({range.bytes.subspan(offset, length), range.writable});
    }
  }
  return slices;
}

// What the threads share. They take slices until there is none, or until one failed.
class SliceQueue {
 public:
  explicit SliceQueue(std::vector<TouchRange> slices) : slices_(std::move(slices)) {}

  void Work() {
    for (size_t i = next_++; i < slices_.size(); i = next_++) {
      const TouchRange& slice = slices_[i];
      Status touched =
          memory::PopulatePages(slice.bytes.data(), slice.bytes.size(), slice.writable);
      if (touched) continue;
      next_ = slices_.size();
      const MutexLock lock(mutex_);
      if (outcome_) outcome_ = std::move(touched);
    }
  }
  size_t size() const { return slices_.size(); }
  Status outcome() {
    const MutexLock lock(mutex_);
    return outcome_;
  }

 private:
  const std::vector<TouchRange> slices_;
  std::atomic<size_t> next_ = 0;
  Mutex mutex_;
  Status outcome_ GUARDED_BY(mutex_);
};

}  // namespace

Status TouchPages(const std::vector<TouchRange>& ranges, int threads) {
  SliceQueue queue(SlicesOf(ranges));
  {
    std::vector<std::jthread> others;
    for (size_t i = 1; i < std::min(static_cast<size_t>(std::max(threads, 1)), queue.size()); ++i) {
      auto other = StartThread("gantry-touch", [&queue] { queue.Work(); });
      if (!other) break;  // this one does the rest
      others.push_back(*std::move(other));
    }
    queue.Work();
  }
  return queue.outcome();
}

}  // namespace gantry::transport
