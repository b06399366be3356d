// Counters that say how far streams of a GPU, and the host, have come; fences of transfers name
// them. Each stream has one of its own, as those of different streams are done in any order.
// Thread-safe.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <memory>
#include <optional>

#include "client/memory/arena.h"
#include "lib/base/clock.h"
#include "lib/base/mutex.h"
#include "lib/base/result.h"
#include "lib/gpu/shared/gpu_workload_device.h"

namespace gantry::client {

// One page of counters. Streams may be about to write to it when nobody wants it any more: it stays
// mapped and pinned until they have, as a write to what is gone ends all use of the GPU.
struct CounterPage {
  static constexpr uint64_t kBytes = 4096;
  static constexpr size_t kCounters = kBytes / sizeof(uint64_t);
  struct Counter {
    // These the timeline's mutex guards.
    uint64_t stream = 0;  // whose it is; 0 is the host's
    bool taken = false;
    int signallers = 0;  // threads that are in the middle of a signal
    // Held while a write is submitted, which can take until the stream goes on: values reach a
    // stream in their order, and other streams are not waited for.
    Mutex submitting;
    uint64_t last = 0;  // value that it was asked to write; does not change without signallers
  };

  uint64_t* PlaceOf(size_t index) const;
  // Whether a counter has all the values that its stream was asked to write.
  bool HasLanded(size_t index) const;
  bool IsQuiet() const;
  // Whether nothing writes to it any more, and the GPU has let go of it. A page that the driver
  // does not let go of stays.
  bool CanGo() const noexcept;

  std::shared_ptr<Arena> arena;                  // of nothing else
  std::unique_ptr<gpu::GpuPinnedMemory> on_gpu;  // goes before the arena does; null: no GPU
  std::array<Counter, kCounters> counters;       // by their place; the first is the host's
  CounterPage* next = nullptr;                   // of those that wait for their streams
  pid_t owner = ::getpid();
};

class Timeline {
 public:
  // What a fence needs beside the buffer.
  struct Signal {
    uint64_t offset = 0;
    uint64_t value = 0;
  };

  // In a writable arena of kBytes, zeroed, for nothing else. Without a device only the host
  // signals.
  static Result<std::unique_ptr<Timeline>> Make(std::shared_ptr<Arena> arena,
                                                std::optional<int> device);
  ~Timeline();
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  // Reached when it returns: for what this thread has done, or has waited for.
  Signal FromHost();
  // Reached when all that the stream was given before is done.
  Result<Signal> FromStream(gpu::StreamHandle stream) EXCLUDES(mutex_);

  // Waits for so long at most: deadline_exceeded. device_error once the GPU's context has ended.
  Status Await(const Signal& signal, milliseconds longest) const;

  // Pages whose timelines ended before all their streams had written: frees those that are quiet
  // now, or whose context has ended. Every Make does it, and every close of a client. The number of
  // those that are left is for tests.
  static size_t FreeQuietPages();

 private:
  Timeline() = default;
  // With one signaller more, who is taken back by Release.
  Result<size_t> Acquire(uint64_t stream) EXCLUDES(mutex_);
  void Release(CounterPage::Counter& counter) EXCLUDES(mutex_);

  std::unique_ptr<gpu::GpuWorkloadDevice> device_;  // constant; null: none
  uint64_t* host_counter_ = nullptr;                // constant
  std::unique_ptr<CounterPage> page_;               // constant until the end
  Mutex mutex_;                                     // of whose each counter is
};

}  // namespace gantry::client
