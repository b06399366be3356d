// A stream of the fake is a thread that does what it was given later, in order, so that whoever
// takes a submitted copy for a finished one is found out; nothing once its context has an error.
// Thread-safe.
#pragma once

#include <atomic>
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

  // Answers how many have been submitted.
  uint64_t Submit(std::function<void()> work);
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
  std::deque<std::function<void()>> waiting_;
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
