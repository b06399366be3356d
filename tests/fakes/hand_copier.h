// One GPU's memory, as a string, and who copies between it and staging memory: nobody, until the
// test does. Thread-safe.
#pragma once

#include <atomic>
#include <cstring>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "lib/base/mutex.h"
#include "sidecar/copy/staging_copier.h"

namespace gantry::transport {

// `gpu_bytes` of one GPU, all 'g' at first. `stage`: the staging memory.
class HandCopier final : public StagingCopier {
 public:
  HandCopier(std::span<std::byte> stage, size_t gpu_bytes) : stage_(stage), gpu_(gpu_bytes, 'g') {}
  Status Usable(wire::MemoryKind /*kind*/) const override {
    if (usable_) return {};
    return Fail(ErrorCode::kPathUnavailable, "nobody copies");
  }
  void SetUsable(bool usable) { usable_ = usable; }
  void Start(StagedCopy copy) override {
    const MutexLock lock(mutex_);
    started_.push_back(std::move(copy));
    changed_.NotifyAll();
  }
  void Abort(const void* owner) override {
    aborted_ = owner;
    ++aborts_;
  }
  bool Poll() override { return false; }

  // The oldest copy that was started and not taken; nothing within `time`.
  std::optional<StagedCopy> Next(milliseconds time = milliseconds(5'000)) {
    const TimePoint until = Clock::now() + time;
    MutexLock lock(mutex_);
    while (started_.empty()) {
      if (!changed_.WaitUntil(lock, until)) return std::nullopt;
    }
    StagedCopy copy = std::move(started_.front());
    started_.pop_front();
    return copy;
  }
  void Finish(StagedCopy copy, Status status = {}) {
    for (const StagedRange& range : copy.ranges) {
      if (!status) break;
      char* const on_gpu = gpu_.data() + range.offset;
      std::byte* const staged = stage_.data() + range.stage_offset;
      copy.to_buffer ? std::memcpy(on_gpu, staged, range.bytes)
                     : std::memcpy(staged, on_gpu, range.bytes);
    }
    copy.ranges.clear();
    copy.done(std::move(status));
  }
  std::string& gpu() { return gpu_; }
  int aborts() const { return aborts_; }
  const void* aborted() const { return aborted_; }  // the owner of the last one

 private:
  const std::span<std::byte> stage_;
  std::string gpu_;
  std::atomic<bool> usable_ = true;
  std::atomic<int> aborts_ = 0;
  std::atomic<const void*> aborted_ = nullptr;
  Mutex mutex_;
  Condition changed_;
  std::deque<StagedCopy> started_ GUARDED_BY(mutex_);
};

}  // namespace gantry::transport
