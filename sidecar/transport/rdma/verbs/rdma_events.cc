#include "sidecar/transport/rdma/verbs/rdma_events.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>
#include <vector>

#include "lib/base/log.h"
#include "lib/base/thread.h"

namespace gantry::transport {
namespace {

constexpr int kEventsAtATime = 64;
constexpr int kSleepMax = 60'000;

}  // namespace

Result<std::unique_ptr<RdmaEvents>> RdmaEvents::Create() {
  UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid()) {
    return Fail(SystemError(ErrorCode::kResourceExhausted, "epoll_create1", errno));
  }
  UniqueFd wake_fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = wake_fd.get();
  if (!wake_fd.valid() || epoll_ctl(epoll.get(), EPOLL_CTL_ADD, wake_fd.get(), &event) != 0) {
    return Fail(SystemError(ErrorCode::kResourceExhausted, "an eventfd", errno));
  }
  std::unique_ptr<RdmaEvents> events(new RdmaEvents(std::move(epoll), std::move(wake_fd)));
  ASSIGN_OR_RETURN(events->thread_,
                   StartThread("gantry-rdma", [raw = events.get()] { raw->Run(); }));
  return events;
}

RdmaEvents::RdmaEvents(UniqueFd epoll, UniqueFd wake_fd)
    : epoll_(std::move(epoll)), wake_fd_(std::move(wake_fd)) {}

RdmaEvents::~RdmaEvents() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  Wake();
  if (thread_.joinable()) thread_.join();
}

Status RdmaEvents::Watch(int fd, std::function<void()> ready) {
  {
    const MutexLock lock(mutex_);
    watched_[fd] = std::make_shared<std::function<void()>>(std::move(ready));
  }
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0) return {};
  const int error_number = errno;
  const MutexLock lock(mutex_);
  watched_.erase(fd);
  return Fail(SystemError(ErrorCode::kResourceExhausted, "waiting for events", error_number));
}

void RdmaEvents::Ignore(int fd) {
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  const MutexLock calling(calling_);
  const MutexLock lock(mutex_);
  watched_.erase(fd);
}

void RdmaEvents::CallAt(TimePoint when, std::function<void()> call) {
  {
    const MutexLock lock(mutex_);
    due_.emplace(when, std::move(call));
  }
  Wake();
}

void RdmaEvents::Wake() const {
  const uint64_t one = 1;
  (void)!write(wake_fd_.get(), &one, sizeof(one));
}

int RdmaEvents::MillisecondsToNext() const {
  const MutexLock lock(mutex_);
  if (due_.empty()) return kSleepMax;
  const auto left =
      std::chrono::duration_cast<milliseconds>(due_.begin()->first - Clock::now()).count() + 1;
  return static_cast<int>(std::clamp<int64_t>(left, 0, kSleepMax));
}

void RdmaEvents::RunDue() {
  std::vector<std::function<void()>> now;
  {
    const MutexLock lock(mutex_);
    const auto end = due_.upper_bound(Clock::now());
    for (auto it = due_.begin(); it != end; ++it) now.push_back(std::move(it->second));
    due_.erase(due_.begin(), end);
  }
  for (const auto& call : now) call();
}

void RdmaEvents::Run() {
  std::array<epoll_event, kEventsAtATime> events;
  for (;;) {
    const int count = epoll_wait(epoll_.get(), events.data(), kEventsAtATime, MillisecondsToNext());
    for (int i = 0; i < count; ++i) {
      const int fd = events[static_cast<size_t>(i)].data.fd;
      if (fd == wake_fd_.get()) {
        uint64_t rings = 0;
        (void)!read(fd, &rings, sizeof(rings));
        continue;
      }
      const MutexLock calling(calling_);
      std::shared_ptr<std::function<void()>> ready;
      {
        const MutexLock lock(mutex_);
        const auto found = watched_.find(fd);
        if (found != watched_.end()) ready = found->second;
      }
      if (ready == nullptr) continue;
      // It would be ready for ever.
      if ((events[static_cast<size_t>(i)].events & (EPOLLHUP | EPOLLERR)) != 0) {
        epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
        log::Warning("a device's events have ended: is it gone?", {{"fd", fd}});
      }
      (*ready)();
    }
    {
      const MutexLock lock(mutex_);
      if (stopping_) return;
    }
    RunDue();
  }
}

}  // namespace gantry::transport
