// A stream of the fake is a thread that does what it was given later, in order, so that whoever
// takes a submitted copy for a finished one is found out; nothing once its context has an error.
// Thread-safe.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "tests/fakes/gpu/fake_results.h"

namespace gantry::fake_gpu {

struct FakeContext;

// Looks at the clock until then, as a sleep takes longer.
void AwaitTime(std::chrono::steady_clock::time_point begin, double nanoseconds);

class FakeStream {
 public:
  // `error` is the context's.
  FakeStream(FakeContext* context, const std::atomic<Result>& error, bool blocking);
  FakeStream(const FakeStream&) = delete;
  FakeStream& operator=(const FakeStream&) = delete;
  ~FakeStream();

  FakeContext* context() const { return context_; }
  bool blocking() const { return blocking_; }
  uint64_t id() const { return id_; }

  // Answers how many have been submitted. With a time the work takes that long.
  uint64_t Submit(std::function<void()> work, double nanoseconds = 0);
  bool IsDone(uint64_t count);
  void WaitFor(uint64_t count);
  void Synchronize();

 private:
  void Run();

  FakeContext* const context_;
  const std::atomic<Result>& error_;
  const bool blocking_;
  const uint64_t id_;  // no other stream of this process has it, or gets it
  std::mutex mutex_;
  std::condition_variable changed_;
  struct Work {
    std::function<void()> run;
    double nanoseconds = 0;  // 0: as long as it takes
  };
  std::deque<Work> waiting_;
  uint64_t submitted_ = 0;
  uint64_t done_ = 0;
  bool ends_ = false;
  std::thread thread_;
};

// What a stream of a vendor points to here.
using StreamHolder = std::shared_ptr<FakeStream>;

// A place in a stream, which it keeps until it is done. Thread-safe.
class FakeEvent {
 public:
  void Record(std::shared_ptr<FakeStream> stream);
  bool IsDone();
  void Wait();

 private:
  std::mutex mutex_;
  std::shared_ptr<FakeStream> stream_;
  uint64_t count_ = 0;
};

}  // namespace gantry::fake_gpu
