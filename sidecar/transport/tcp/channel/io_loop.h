// An event loop: one thread that waits for sockets, tasks and timers. All data connections of a
// sidecar share a set of loops. A connection stays on one loop, so its handlers need no lock.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <unordered_map>
#include <vector>

#include "lib/base/clock.h"
#include "lib/base/mutex.h"
#include "lib/base/result.h"
#include "lib/base/unique_fd.h"

namespace gantry::transport {

class IoHandler {
 public:
  virtual ~IoHandler() = default;
  // `events` are epoll(7) events, level-triggered.
  virtual void OnReady(uint32_t events) = 0;
  // Called five times a second.
  virtual void OnTick(TimePoint now) = 0;
};

class IoLoop {
 public:
  // `name` is the thread's name, at most 15 characters.
  static Result<std::unique_ptr<IoLoop>> Create(const char* name);
  IoLoop(const IoLoop&) = delete;
  IoLoop& operator=(const IoLoop&) = delete;
  // Runs the posted tasks, then ends; drops the remaining handlers.
  ~IoLoop();

  // Any thread. Tasks run in the order of posting.
  void Post(std::function<void()> task) EXCLUDES(mutex_);
  void PostAt(TimePoint when, std::function<void()> task);
  // Blocks until the task has run; not from the loop's own thread.
  void RunAndWait(const std::function<void()>& task);

  // These three: on the loop's thread only. The loop keeps the handler until Remove.
  Status Add(int fd, uint32_t events, std::shared_ptr<IoHandler> handler);
  void Change(int fd, uint32_t events);
  void Remove(int fd);

 private:
  IoLoop(UniqueFd epoll, UniqueFd wake);
  void Run();
  bool RunTasks() EXCLUDES(mutex_);  // false: stop the loop
  void RunTimers(TimePoint now);
  void Tick(TimePoint now);
  int WaitMilliseconds(TimePoint now) const;

  const UniqueFd epoll_;
  const UniqueFd wake_;
  std::unordered_map<int, std::shared_ptr<IoHandler>> handlers_;
  std::multimap<TimePoint, std::function<void()>> timers_;
  std::vector<std::function<void()>> running_;
  TimePoint next_tick_{};

  Mutex mutex_;
  std::vector<std::function<void()>> tasks_ GUARDED_BY(mutex_);
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::jthread thread_;  // last: it uses all of the above
};

// Default number of loop threads: one per stream, at most half of the processors, at least two.
// With fewer threads, they and not the sockets limit throughput on large machines.
int IoThreadsFor(int streams, unsigned processors);

class IoLoops {
 public:
  static Result<std::unique_ptr<IoLoops>> Create(int threads);

  IoLoop& Next() { return *loops_[next_.fetch_add(1, std::memory_order_relaxed) % loops_.size()]; }
  size_t size() const { return loops_.size(); }
  IoLoop& at(size_t index) { return *loops_[index]; }

 private:
  IoLoops() = default;
  std::vector<std::unique_ptr<IoLoop>> loops_;
  std::atomic<size_t> next_{0};
};

}  // namespace gantry::transport
