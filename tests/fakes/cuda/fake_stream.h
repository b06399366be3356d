// A stream of the fake is a thread that does what it was given later, in order, so that whoever
// takes a submitted copy for a finished one is found out. Thread-safe.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace gantry::fake_cuda {

class FakeStream {
 public:
  FakeStream() : thread_([this] { Run(); }) {}
  FakeStream(const FakeStream&) = delete;
  FakeStream& operator=(const FakeStream&) = delete;
  ~FakeStream();

  // Answers how many have been submitted.
  uint64_t Submit(std::function<void()> work);
  bool IsDone(uint64_t count);
  void WaitFor(uint64_t count);
  void Synchronize();

 private:
  void Run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;
  uint64_t submitted_ = 0;
  uint64_t done_ = 0;
  bool ends_ = false;
  std::thread thread_;
};

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

}  // namespace gantry::fake_cuda
