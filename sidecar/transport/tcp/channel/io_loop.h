// A thread that waits for sockets, tasks and times, and the set of them that all data connections
// of a sidecar share. A connection lives on one loop; what it does there needs no lock.
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
  // `events` as of epoll(7), level-triggered.
  virtual void OnReady(uint32_t events) = 0;
  // Five times a second.
  virtual void OnTick(TimePoint now) = 0;
};

class IoLoop {
 public:
  // `name`: of the thread, 15 characters at most.
  static Result<std::unique_ptr<IoLoop>> Create(const char* name);
  IoLoop(const IoLoop&) = delete;
  IoLoop& operator=(const IoLoop&) = delete;
  // Runs the tasks that are posted already, then ends; drops what handlers are left.
  ~IoLoop();

  // From any thread. Tasks run in the order in which they were posted.
  void Post(std::function<void()> task) EXCLUDES(mutex_);
  void PostAt(TimePoint when, std::function<void()> task);
  // Runs the task and returns; not from the loop itself.
  void RunAndWait(const std::function<void()>& task);

  // On the loop's thread only. The handler is kept until Remove.
  Status Add(int fd, uint32_t events, std::shared_ptr<IoHandler> handler);
  void Change(int fd, uint32_t events);
  void Remove(int fd);

 private:
  IoLoop(UniqueFd epoll, UniqueFd wake);
  void Run();
  bool RunTasks() EXCLUDES(mutex_);  // false: it is time to end
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

// How many threads carry the streams to a peer when nobody says: one for each, within half of the
// processors, and two at least. With fewer the threads, not the sockets, bound what many processors
// can move.
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
