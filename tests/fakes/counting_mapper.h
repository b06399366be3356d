// A memory mapper that maps nothing: it counts, fails when told to, and can be slow. Unmapping
// what is not mapped fails the test. Thread-safe.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lib/base/clock.h"
#include "lib/base/mutex.h"
#include "sidecar/memory/memory_mapper.h"

namespace gantry {

class CountingMapper final : public memory::MemoryMapper {
 public:
  using memory::MemoryMapper::MemoryMapper;
  Result<memory::MappingId> Map(const memory::AllocationSource& source) override {
    std::this_thread::sleep_for(map_time_);
    MutexLock lock(mutex_);
    if (++maps_ == failing_map_) return Fail(ErrorCode::kDeviceError, "no mapping for the test");
    const memory::MappingId id{next_slot_++, 1};
    live_.emplace(id.slot, source);
    return id;
  }

  Status Unmap(memory::MappingId mapping) override {
    if (before_unmap_) before_unmap_(mapping);
    MutexLock lock(mutex_);
    ++unmaps_;
    EXPECT_EQ(live_.erase(mapping.slot), 1u) << "slot " << mapping.slot << " is not mapped";
    if (unmaps_fail_) return Fail(ErrorCode::kWorkerLost, "no unmapping for the test");
    return {};
  }

  Result<std::optional<memory::ProbeMismatch>> Compare(
      std::span<const memory::MemoryProbe> probes) override {
    MutexLock lock(mutex_);
    probes_.assign(probes.begin(), probes.end());
    for (const memory::MemoryProbe& probe : probes) {
      EXPECT_TRUE(live_.contains(probe.mapping.slot)) << "slot " << probe.mapping.slot;
    }
    return comparison_;
  }

  // What Compare answers from now on.
  void SetComparison(Result<std::optional<memory::ProbeMismatch>> comparison) {
    MutexLock lock(mutex_);
    comparison_ = std::move(comparison);
  }
  // Those of the last call of Compare.
  std::vector<memory::MemoryProbe> probes() const {
    MutexLock lock(mutex_);
    return probes_;
  }
  // The n-th call of Map from the start, counted from 1, fails.
  void FailMap(int n) {
    MutexLock lock(mutex_);
    failing_map_ = n;
  }
  void FailUnmaps() {
    MutexLock lock(mutex_);
    unmaps_fail_ = true;
  }
  // Both before the mapper is used.
  void SetMapTime(milliseconds time) { map_time_ = time; }
  void SetBeforeUnmap(std::function<void(memory::MappingId)> call) {
    before_unmap_ = std::move(call);
  }

  int maps() const {
    MutexLock lock(mutex_);
    return maps_;
  }
  int unmaps() const {
    MutexLock lock(mutex_);
    return unmaps_;
  }
  size_t live() const {
    MutexLock lock(mutex_);
    return live_.size();
  }
  bool IsLive(memory::MappingId mapping) const {
    MutexLock lock(mutex_);
    return live_.contains(mapping.slot);
  }

 private:
  milliseconds map_time_{0};
  std::function<void(memory::MappingId)> before_unmap_;

  mutable Mutex mutex_;
  int maps_ GUARDED_BY(mutex_) = 0;
  int unmaps_ GUARDED_BY(mutex_) = 0;
  int failing_map_ GUARDED_BY(mutex_) = 0;
  bool unmaps_fail_ GUARDED_BY(mutex_) = false;
  uint32_t next_slot_ GUARDED_BY(mutex_) = 0;
  std::map<uint32_t, memory::AllocationSource> live_ GUARDED_BY(mutex_);
  std::vector<memory::MemoryProbe> probes_ GUARDED_BY(mutex_);
  Result<std::optional<memory::ProbeMismatch>> comparison_ GUARDED_BY(mutex_);
};

}  // namespace gantry
