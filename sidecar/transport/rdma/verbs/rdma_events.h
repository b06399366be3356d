// A thread that waits for device events and timers, so that the driver can sleep. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <unordered_map>

#include "lib/base/clock.h"
#include "lib/base/mutex.h"
#include "lib/base/result.h"
#include "lib/base/unique_fd.h"

namespace gantry::transport {

class RdmaEvents {
 public:
  static Result<std::unique_ptr<RdmaEvents>> Create();
  RdmaEvents(const RdmaEvents&) = delete;
  RdmaEvents& operator=(const RdmaEvents&) = delete;
  ~RdmaEvents();

  // Calls `ready` whenever `fd` is readable; `ready` must read. Ends with Ignore. If the descriptor
  // hangs up, that is logged and `ready` is called a last time.
  Status Watch(int fd, std::function<void()> ready) EXCLUDES(mutex_);
  // After the return `ready` is not running. Do not call from `ready`.
  void Ignore(int fd) EXCLUDES(mutex_);
  // Calls `call` once at `when`, unless this is destroyed first.
  void CallAt(TimePoint when, std::function<void()> call) EXCLUDES(mutex_);

 private:
  RdmaEvents(UniqueFd epoll, UniqueFd wake_fd);
  void Run();
  void RunDue() EXCLUDES(mutex_);
  int MillisecondsToNext() const EXCLUDES(mutex_);
  void Wake() const;

  const UniqueFd epoll_;
  const UniqueFd wake_fd_;

  Mutex calling_;  // held while `ready` runs; acquire before mutex_
  mutable Mutex mutex_;
  std::unordered_map<int, std::shared_ptr<std::function<void()>>> watched_ GUARDED_BY(mutex_);
  std::multimap<TimePoint, std::function<void()>> due_ GUARDED_BY(mutex_);
  bool stopping_ GUARDED_BY(mutex_) = false;

  std::jthread thread_;  // last: it uses the others
};

}  // namespace gantry::transport
