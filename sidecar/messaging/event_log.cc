#include "sidecar/messaging/event_log.h"

#include <utility>

namespace gantry::engine {

std::string_view NameOf(EventType type) {
  switch (type) {
    case EventType::kTransfer:
      return "transfer";
    case EventType::kWorkloadEnded:
      return "workload_ended";
    case EventType::kPeerUp:
      return "peer_up";
    case EventType::kPeerDown:
      return "peer_down";
    case EventType::kBufferRevoked:
      return "buffer_revoked";
    case EventType::kNotification:
      return "notification";
    case EventType::kNotificationOutcome:
      return "notification_outcome";
    case EventType::kHold:
      break;
  }
  return "hold";
}

namespace {

size_t ItemsOf(const Event& event) {
  return event.transfer == nullptr || event.transfer->failed_items == nullptr
             ? 0
             : event.transfer->failed_items->size();
}

}  // namespace

EventLog::EventLog(size_t events_max, NotificationLimits limits)
    : events_max_(events_max), limits_(limits) {}

void EventLog::Append(Event event) {
  {
    MutexLock lock(mutex_);
    Keep(std::move(event));
  }
  appended_.NotifyAll();
}

void EventLog::Keep(Event event) {
  event.sequence = ++last_sequence_;
  items_ += ItemsOf(event);
  events_.push_back(std::move(event));
  while (events_.size() > events_max_ || (items_ > kItemsMax && events_.size() > 1)) DropOldest();
}

void EventLog::DropOldest() {
  const Event& oldest = events_.front();
  items_ -= ItemsOf(oldest);
  if (oldest.notification != nullptr) {
    const auto window = windows_.find(oldest.workload);
    if (window != windows_.end()) window->second.Drop(oldest.sequence);
  }
  events_.pop_front();
}

void EventLog::DropMessages(const std::vector<uint64_t>& sequences) {
  const uint64_t oldest = last_sequence_ - events_.size() + 1;
  for (const uint64_t sequence : sequences) {
    if (sequence >= oldest) events_[static_cast<size_t>(sequence - oldest)].notification.reset();
  }
}

Status EventLog::AppendNotification(Event event) {
  {
    MutexLock lock(mutex_);
    NotificationWindow& window = windows_[event.workload];
    DropMessages(window.BeginLife(event.workload_generation));
    const size_t bytes = event.notification->content.message.size();
    std::vector<uint64_t> dropped;
    const bool has_room = window.MakeRoom(bytes, limits_, &dropped);
    DropMessages(dropped);
    if (!has_room) {
      return Fail(ErrorCode::kResourceExhausted,
                  "workload '" + event.workload + "' has " + std::to_string(window.size()) +
                      " notifications that it has not read",
                  "try again when it polls for its events");
    }
    window.Add(last_sequence_ + 1, bytes);
    Keep(std::move(event));
  }
  appended_.NotifyAll();
  return {};
}

void EventLog::Acknowledge(const EventReader& reader, uint64_t cursor) {
  MutexLock lock(mutex_);
  const auto window = windows_.find(reader.workload);
  // A cursor from the future belongs to an earlier life of the sidecar.
  if (window == windows_.end() || cursor > last_sequence_) return;
  window->second.Acknowledge(reader.generation, cursor);
}

void EventLog::ForgetNotifications(std::string_view workload, uint64_t generation) {
  MutexLock lock(mutex_);
  const auto window = windows_.find(workload);
  if (window == windows_.end() || window->second.generation() != generation) return;
  DropMessages(window->second.BeginLife(0));
  windows_.erase(window);
}

EventLog::Page EventLog::Poll(const EventReader& reader, uint64_t cursor, size_t max,
                              TimePoint deadline) const {
  Page page;
  page.cursor = cursor;
  MutexLock lock(mutex_);
  while (true) {
    // A cursor from the future belongs to an earlier life of the sidecar: begin again.
    if (page.cursor > last_sequence_) page.cursor = 0;
    const uint64_t oldest = last_sequence_ - events_.size() + 1;
    if (page.cursor + 1 < oldest) {
      if (page.cursor != 0) page.lost += oldest - page.cursor - 1;
      page.cursor = oldest - 1;
    }
    for (uint64_t sequence = page.cursor + 1;
         sequence <= last_sequence_ && page.events.size() < max; ++sequence) {
      const Event& event = events_[static_cast<size_t>(sequence - oldest)];
      page.cursor = sequence;
      const bool dropped = event.type == EventType::kNotification && event.notification == nullptr;
      if (!dropped && reader.Sees(event)) page.events.push_back(event);
    }
    if (!page.events.empty() || closed_) return page;
    if (!appended_.WaitUntil(lock, deadline)) return page;
  }
}

uint64_t EventLog::last_sequence() const {
  MutexLock lock(mutex_);
  return last_sequence_;
}

void EventLog::Close() {
  {
    MutexLock lock(mutex_);
    closed_ = true;
  }
  appended_.NotifyAll();
}

}  // namespace gantry::engine
