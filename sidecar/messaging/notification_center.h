// Notifications out of and into the workloads of this sidecar. A notification is delivered when it
// is in the event log of its receiver: once for each id, within what the receiver has room for.
// Thread-safe; nothing here waits.
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
  // All outlive it. The ids of that many notifications are remembered, so that one that comes
  // again is known.
  NotificationCenter(const registry::WorkloadTable& workloads, EventLog& events,
                     metrics::Metrics& metrics, size_t ids_kept_max = 65'536);

  // Null: there are no peers, or no longer. When this returns, the one before is not used any more.
  void SetMessenger(PeerMessenger* messenger) EXCLUDES(mutex_);

  // To a workload of `peer` (empty: this sidecar). `done` is called once, perhaps before this
  // returns; the outcome is counted.
  void Send(const std::string& peer, wire::Notification notification, TimePoint deadline,
            DeliveryDone done) EXCLUDES(mutex_);
  // Likewise, of a transfer that waits: PeerMessenger::NotifyOfTransfer.
  void SendOfTransfer(const std::string& peer, wire::Notification notification, TimePoint deadline,
                      DeliveryDone done) EXCLUDES(mutex_);
  // As Send, and the sending workload is told by an event.
  void SendAndReport(const std::string& peer, wire::Notification notification, TimePoint deadline)
      EXCLUDES(mutex_);

  // To a workload here. Fails with kNotFound, kStaleGeneration (the receiver is not the one that
  // was meant), kConflict (the id was used for another message) or kResourceExhausted (the receiver
  // does not read).
  Status Deliver(wire::Notification notification) EXCLUDES(mutex_);

  // What was not read by this life of the workload is dropped.
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
  std::deque<std::string> order_ GUARDED_BY(mutex_);                         // of delivered_
};

}  // namespace gantry::engine
