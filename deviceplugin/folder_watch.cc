#include "deviceplugin/folder_watch.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "lib/base/poll_fd.h"

namespace gantry::deviceplugin {
namespace {

constexpr milliseconds kLookForFolder{1'000};

}  // namespace

FolderWatch::FolderWatch(std::string folder)
    : folder_(std::move(folder)),
      events_(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC)),
      wake_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  Watch();
}

void FolderWatch::Watch() {
  constexpr uint32_t kEvents =
      IN_CREATE | IN_DELETE | IN_MOVED_TO | IN_MOVED_FROM | IN_DELETE_SELF | IN_MOVE_SELF;
  watched_ = ::inotify_add_watch(events_.get(), folder_.c_str(), kEvents) >= 0;
}

void FolderWatch::Wait(TimePoint deadline) {
  if (!watched_) {
    Watch();
    if (watched_) return;  // it has come, with whatever is in it
    deadline = std::min<TimePoint>(deadline, Clock::now() + kLookForFolder);
  }
  std::array<pollfd, 2> sources = {{{events_.get(), POLLIN, 0}, {wake_.get(), POLLIN, 0}}};
  ::poll(sources.data(), sources.size(), MillisecondsUntil(deadline));
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t taken = ::read(wake_.get(), &count, sizeof(count));
  TakeEvents();
}

void FolderWatch::TakeEvents() {
  alignas(inotify_event) std::array<char, 4096> buffer = {};
  ssize_t bytes = 0;
  while ((bytes = ::read(events_.get(), buffer.data(), buffer.size())) > 0) {
    for (ssize_t at = 0; at < bytes;) {
      inotify_event event = {};
      std::memcpy(&event, buffer.data() + at, sizeof(event));
      // Among the events that were lost may be that the folder has gone.
      constexpr uint32_t kLost = IN_IGNORED | IN_DELETE_SELF | IN_MOVE_SELF | IN_Q_OVERFLOW;
      if ((event.mask & kLost) != 0) watched_ = false;
      at += static_cast<ssize_t>(sizeof(event) + event.len);
    }
  }
}

void FolderWatch::Wake() const {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof(one));
}

}  // namespace gantry::deviceplugin
