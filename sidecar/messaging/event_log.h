// Events for clients that poll: finished transfers, notifications, lease and peer events. One
// sequence with bounded memory. Thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/clock.h"
#include "lib/base/mutex.h"
#include "lib/base/result.h"
#include "lib/wire/notification.h"
#include "sidecar/messaging/delivery_report.h"
#include "sidecar/messaging/hold_info.h"
#include "sidecar/messaging/notification_window.h"
#include "sidecar/messaging/transfer_status.h"

namespace gantry::engine {

enum class EventType {
  kTransfer,
  kWorkloadEnded,
  kPeerUp,
  kPeerDown,
  kBufferRevoked,
  kNotification,
  kNotificationOutcome,
  kHold
};
std::string_view NameOf(EventType type);  // "transfer", "workload_ended", "peer_up", ...

struct Event {
  uint64_t sequence = 0;  // 1, 2, 3, ...
  EventType type = EventType::kTransfer;
  std::string workload;  // empty: visible to every workload
  std::string subject;   // id of the transfer, hold or notification; name of the peer or buffer
  std::string detail;    // the reason, for people
  std::shared_ptr<const TransferStatus> transfer;  // set for kTransfer
  uint64_t workload_generation = 0;                // generation of that workload's registration
  std::shared_ptr<const wire::Notification> notification = nullptr;  // set for kNotification
  std::shared_ptr<const DeliveryReport> delivery = nullptr;          // set for kNotificationOutcome
  std::shared_ptr<const HoldInfo> hold = nullptr;                    // set for kHold
};

// The reader is one registration of a workload: a new one does not see its predecessor's events.
// Generation 0 stands for all registrations.
struct EventReader {
  std::string_view workload;
  uint64_t generation = 0;
  bool has_transfers = true;  // it sees the ends of transfers

  bool Sees(const Event& event) const {
    if (!has_transfers && event.type == EventType::kTransfer) return false;
    if (event.workload.empty()) return true;
    return event.workload == workload &&
           (generation == 0 || event.workload_generation == generation);
  }
};

class EventLog {
 public:
  explicit EventLog(size_t events_max, NotificationLimits limits = {});

  void Append(Event event);
  // Fails with kResourceExhausted when the receiver has too many unread notifications.
  Status AppendNotification(Event event);
  // Confirms that the reader has everything up to `cursor`. Notifications stay readable until their
  // room is needed.
  void Acknowledge(const EventReader& reader, uint64_t cursor);
  // Drops the notifications of this registration of the workload.
  void ForgetNotifications(std::string_view workload, uint64_t generation);

  struct Page {
    std::vector<Event> events;
    uint64_t cursor = 0;  // pass it to the next call
    // Dropped events after the cursor, visible to the reader or not; 0 for cursor 0.
    uint64_t lost = 0;
  };
  // Returns the events after `cursor` that the reader sees; waits for the first until the deadline.
  // Cursor 0 begins with the oldest event that is kept.
  Page Poll(const EventReader& reader, uint64_t cursor, size_t max, TimePoint deadline) const;
  uint64_t last_sequence() const;
  // Wakes all pollers. From then on Poll returns at once.
  void Close();

 private:
  static constexpr size_t kItemsMax = 4'000'000;  // limit of failed items over all events

  void Keep(Event event) REQUIRES(mutex_);
  void DropOldest() REQUIRES(mutex_);
  void DropMessages(const std::vector<uint64_t>& sequences) REQUIRES(mutex_);

  const size_t events_max_;
  const NotificationLimits limits_;

  mutable Mutex mutex_;
  mutable Condition appended_;
  std::deque<Event> events_ GUARDED_BY(mutex_);
  // By workload, for its current registration.
  std::map<std::string, NotificationWindow, std::less<>> windows_ GUARDED_BY(mutex_);
  uint64_t last_sequence_ GUARDED_BY(mutex_) = 0;
  size_t items_ GUARDED_BY(mutex_) = 0;
  bool closed_ GUARDED_BY(mutex_) = false;
};

}  // namespace gantry::engine
