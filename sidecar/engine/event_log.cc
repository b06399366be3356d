#include "sidecar/engine/event_log.h"

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
      break;
  }
  return "buffer_revoked";
}

namespace {

size_t ItemsOf(const Event& event) {
  return event.transfer == nullptr || event.transfer->failed_items == nullptr
             ? 0
             : event.transfer->failed_items->size();
}

}  // namespace

EventLog::EventLog(size_t events_max) : events_max_(events_max) {}

void EventLog::Append(Event event) {
  {
    MutexLock lock(mutex_);
    event.sequence = ++last_sequence_;
    items_ += ItemsOf(event);
    events_.push_back(std::move(event));
    while (events_.size() > events_max_ || (items_ > kItemsMax && events_.size() > 1)) {
      items_ -= ItemsOf(events_.front());
      events_.pop_front();
    }
  }
  appended_.NotifyAll();
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
      if (reader.Sees(event)) page.events.push_back(event);
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
