// What happened, for those who poll: finished transfers, notifications, lease and peer events, in
// one sequence with a bounded memory. Thread-safe.
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
  std::string workload;                            // empty: concerns everyone
  std::string subject;                             // id of the transfer, name of the peer or buffer
  std::string detail;                              // why, for a person
  std::shared_ptr<const TransferStatus> transfer;  // of kTransfer
  uint64_t workload_generation = 0;                // of its registration
  std::shared_ptr<const wire::Notification> notification = nullptr;  // of kNotification
  std::shared_ptr<const DeliveryReport> delivery = nullptr;          // of kNotificationOutcome
  std::shared_ptr<const HoldInfo> hold = nullptr;                    // of kHold
};

// Who reads: one registration of a workload, so that a new one does not see what its predecessor
// did. Generation 0 stands for all of them.
struct EventReader {
  std::string_view workload;
  uint64_t generation = 0;

  bool Sees(const Event& event) const {
    if (event.workload.empty()) return true;
    return event.workload == workload &&
           (generation == 0 || event.workload_generation == generation);
  }
};

class EventLog {
 public:
  explicit EventLog(size_t events_max, NotificationLimits limits = {});

  void Append(Event event);
  // Fails with kResourceExhausted when the receiver has not read what it was sent before.
  Status AppendNotification(Event event);
  // The reader has seen everything up to `cursor`. It can be read again until room is needed.
  void Acknowledge(const EventReader& reader, uint64_t cursor);
  void ForgetNotifications(std::string_view workload, uint64_t generation);

  struct Page {
    std::vector<Event> events;
    uint64_t cursor = 0;  // pass it to the next call
    uint64_t lost = 0;    // events after the cursor that were already forgotten
  };
  // Events that the reader sees after `cursor`; waits until there is one or the deadline. Cursor 0
  // begins with the oldest that is kept.
  Page Poll(const EventReader& reader, uint64_t cursor, size_t max, TimePoint deadline) const;
  uint64_t last_sequence() const;
  // Wakes all pollers; they return what there is, now and ever after.
  void Close();

 private:
  static constexpr size_t kItemsMax = 4'000'000;  // failed items of all events together

  void Keep(Event event) REQUIRES(mutex_);
  void DropOldest() REQUIRES(mutex_);
  void DropMessages(const std::vector<uint64_t>& sequences) REQUIRES(mutex_);

  const size_t events_max_;
  const NotificationLimits limits_;

  mutable Mutex mutex_;
  mutable Condition appended_;
  std::deque<Event> events_ GUARDED_BY(mutex_);
  // By workload; of its current life.
  std::map<std::string, NotificationWindow, std::less<>> windows_ GUARDED_BY(mutex_);
  uint64_t last_sequence_ GUARDED_BY(mutex_) = 0;
  size_t items_ GUARDED_BY(mutex_) = 0;
  bool closed_ GUARDED_BY(mutex_) = false;
};

}  // namespace gantry::engine
