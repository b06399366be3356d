// Sends and receives notifications for the workloads of this sidecar. A notification is delivered
// once it is in its receiver's event log. Each id is delivered once, if the receiver has room.
// Thread-safe; never blocks.
#pragma once

#include <absl/container/flat_hash_map.h>

#include <deque>
#include <string>
#include <string_view>

#include "lib/base/mutex.h"
#include "lib/base/result.h"
#include "lib/wire/notification.h"
#include "sidecar/messaging/event_log.h"
#include "sidecar/metrics/metrics.h"
#include "sidecar/registry/workload_table.h"
#include "sidecar/remote/peer_messenger.h"

namespace gantry::engine {

class NotificationCenter {
 public:
  // All references outlive it. It remembers the ids of the last `ids_kept_max` notifications to
  // recognise repeats.
  NotificationCenter(const registry::WorkloadTable& workloads, EventLog& events,
                     metrics::Metrics& metrics, size_t ids_kept_max = 65'536);

  // Null: there are no peers any more. After the return the previous messenger is not used.
  void SetMessenger(PeerMessenger* messenger) EXCLUDES(mutex_);

  // Sends to a workload of `peer` (empty: this sidecar). `done` is called exactly once, possibly
  // before this returns. The outcome is counted.
  void Send(const std::string& peer, wire::Notification notification, TimePoint deadline,
            DeliveryDone done) EXCLUDES(mutex_);
  // Like Send, for a transfer that waits for the outcome: see PeerMessenger::NotifyOfTransfer.
  void SendOfTransfer(const std::string& peer, wire::Notification notification, TimePoint deadline,
                      DeliveryDone done) EXCLUDES(mutex_);
  // Like Send; an event reports the outcome to the sending workload.
  void SendAndReport(const std::string& peer, wire::Notification notification, TimePoint deadline)
      EXCLUDES(mutex_);

  // Delivers to a workload of this sidecar. kNotFound: no such workload. kStaleGeneration: another
  // registration was meant. kConflict: the id was used for another message. kResourceExhausted: the
  // receiver has too many unread notifications.
  Status Deliver(wire::Notification notification) EXCLUDES(mutex_);

  // Drops the unread notifications of this registration of the workload.
  void EndWorkload(const std::string& workload, uint64_t generation) EXCLUDES(mutex_);

 private:
  using Method = void (PeerMessenger::*)(const std::string& peer, wire::Notification notification,
                                         TimePoint deadline, DeliveryDone done);
  void SendBy(Method method, const std::string& peer, wire::Notification notification,
              TimePoint deadline, DeliveryDone done) EXCLUDES(mutex_);
  Status DeliverNew(wire::Notification notification) REQUIRES(mutex_);

  const registry::WorkloadTable& workloads_;
  EventLog& events_;
  metrics::Metrics& metrics_;
  const size_t ids_kept_max_;

  Mutex messenger_mutex_;
  PeerMessenger* messenger_ GUARDED_BY(messenger_mutex_) = nullptr;

  Mutex mutex_;
  absl::flat_hash_map<std::string, uint64_t> delivered_ GUARDED_BY(mutex_);  // id -> content
  std::deque<std::string> order_ GUARDED_BY(mutex_);  // ids of delivered_, oldest first
};

}  // namespace gantry::engine
