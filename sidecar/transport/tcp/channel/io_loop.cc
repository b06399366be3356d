#include "sidecar/transport/tcp/channel/io_loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <future>
#include <utility>

#include "lib/base/log.h"
#include "lib/base/thread.h"

namespace gantry::transport {
namespace {

constexpr milliseconds kTick{200};
constexpr int kEventsPerWait = 64;

}  // namespace

Result<std::unique_ptr<IoLoop>> IoLoop::Create(const char* name) {
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  UniqueFd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!epoll.valid() || !wake.valid()) {
    return Fail(SystemError(ErrorCode::kResourceExhausted, "epoll and eventfd", errno));
  }
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.fd = wake.get();
  if (::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, wake.get(), &event) != 0) {
    return Fail(SystemError(ErrorCode::kResourceExhausted, "epoll_ctl", errno));
  }
  std::unique_ptr<IoLoop> loop(new IoLoop(std::move(epoll), std::move(wake)));
  ASSIGN_OR_RETURN(loop->thread_, StartThread(name, [raw = loop.get()] { raw->Run(); }));
  return loop;
}

IoLoop::IoLoop(UniqueFd epoll, UniqueFd wake) : epoll_(std::move(epoll)), wake_(std::move(wake)) {}

IoLoop::~IoLoop() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  Post([] {});
  if (thread_.joinable()) thread_.join();
}

void IoLoop::Post(std::function<void()> task) {
  {
    const MutexLock lock(mutex_);
    tasks_.push_back(std::move(task));
    if (tasks_.size() > 1) return;  // whoever posted the first one wakes the loop
  }
  const uint64_t one = 1;
  // It only fails when the loop has 2^64 wake-ups before it.
  (void)!::write(wake_.get(), &one, sizeof(one));
}

void IoLoop::PostAt(TimePoint when, std::function<void()> task) {
  Post([this, when, task = std::move(task)]() mutable { timers_.emplace(when, std::move(task)); });
}

void IoLoop::RunAndWait(const std::function<void()>& task) {
  std::promise<void> done;
  Post([&] {
    task();
    done.set_value();
  });
  done.get_future().wait();
}

Status IoLoop::Add(int fd, uint32_t events, std::shared_ptr<IoHandler> handler) {
  epoll_event event = {};
  event.events = events;
  event.data.fd = fd;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    return Fail(SystemError(ErrorCode::kResourceExhausted, "epoll_ctl", errno));
  }
  if (handlers_.empty()) next_tick_ = Clock::now() + kTick;
  handlers_.insert_or_assign(fd, std::move(handler));
  return {};
}

void IoLoop::Change(int fd, uint32_t events) {
  epoll_event event = {};
  event.events = events;
  event.data.fd = fd;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event) != 0) {
    log::Error("epoll_ctl failed", {{"errno", errno}});
  }
}

void IoLoop::Remove(int fd) {
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  handlers_.erase(fd);
}

void IoLoop::Run() {
  std::array<epoll_event, kEventsPerWait> events = {};
  while (RunTasks()) {
    RunTimers(Clock::now());
    const int count =
        ::epoll_wait(epoll_.get(), events.data(), kEventsPerWait, WaitMilliseconds(Clock::now()));
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = events[static_cast<size_t>(i)];
      if (event.data.fd == wake_.get()) {
        uint64_t wakes = 0;
        (void)!::read(wake_.get(), &wakes, sizeof(wakes));
        continue;
      }
      const auto found = handlers_.find(event.data.fd);
      if (found == handlers_.end()) continue;
      // It may remove itself.
      const std::shared_ptr<IoHandler> handler = found->second;
      handler->OnReady(event.events);
    }
    Tick(Clock::now());
  }
  handlers_.clear();
}

bool IoLoop::RunTasks() {
  bool stopping = false;
  {
    const MutexLock lock(mutex_);
    running_.swap(tasks_);
    stopping = stopping_;
  }
  for (const auto& task : running_) task();
  const bool any = !running_.empty();
  running_.clear();
  if (!stopping) return true;
  if (any) return RunTasks();
  return false;
}

void IoLoop::RunTimers(TimePoint now) {
  while (!timers_.empty() && timers_.begin()->first <= now) {
    const auto task = std::move(timers_.begin()->second);
    timers_.erase(timers_.begin());
    task();
  }
}

void IoLoop::Tick(TimePoint now) {
  if (handlers_.empty() || now < next_tick_) return;
  next_tick_ = now + kTick;
  std::vector<std::shared_ptr<IoHandler>> handlers;
  handlers.reserve(handlers_.size());
  for (const auto& [fd, handler] : handlers_) handlers.push_back(handler);
  for (const auto& handler : handlers) handler->OnTick(now);
}

int IoLoop::WaitMilliseconds(TimePoint now) const {
  TimePoint next = TimePoint::max();
  if (!handlers_.empty()) next = next_tick_;
  if (!timers_.empty()) next = std::min(next, timers_.begin()->first);
  if (next == TimePoint::max()) return -1;
  if (next <= now) return 0;
  return static_cast<int>(std::chrono::ceil<milliseconds>(next - now).count());
}

int IoThreadsFor(int streams, unsigned processors) {
  return std::max(2, std::min(streams, static_cast<int>(processors / 2)));
}

Result<std::unique_ptr<IoLoops>> IoLoops::Create(int threads) {
  auto loops = std::unique_ptr<IoLoops>(new IoLoops());
  for (int i = 0; i < std::max(threads, 1); ++i) {
    ASSIGN_OR_RETURN(auto loop, IoLoop::Create("gantry-tcp"));
    loops->loops_.push_back(std::move(loop));
  }
  return loops;
}

}  // namespace gantry::transport
