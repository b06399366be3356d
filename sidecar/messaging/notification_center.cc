#include "sidecar/messaging/notification_center.h"

#include <functional>
#include <utility>

#include "lib/base/random_id.h"

namespace gantry::engine {
namespace {

std::string KeyOf(const wire::Notification& notification) {
  return HexOf(notification.from_peer_generation) + HexOf(notification.from_workload_generation) +
         notification.id;
}

uint64_t ContentOf(const wire::Notification& notification) {
  const std::hash<std::string_view> hash;
  const wire::NotificationContent& said = notification.content;
  uint64_t content = hash(said.message);
  for (const std::string* text : {&said.to, &said.request_id}) {
    content = content * 0x100000001b3ULL ^ hash(*text);
  }
  return content;
}

metrics::NotificationOutcome OutcomeOf(const Status& status) {
  if (status) return metrics::NotificationOutcome::kSucceeded;
  switch (status.error().code) {
    case ErrorCode::kDeadlineExceeded:
      return metrics::NotificationOutcome::kExpired;
    case ErrorCode::kNotFound:
    case ErrorCode::kStaleGeneration:
    case ErrorCode::kConflict:
    case ErrorCode::kPermissionDenied:
    case ErrorCode::kResourceExhausted:
      return metrics::NotificationOutcome::kRejected;
    default:
      return metrics::NotificationOutcome::kFailed;
  }
}

}  // namespace

NotificationCenter::NotificationCenter(const registry::WorkloadTable& workloads, EventLog& events,
                                       metrics::Metrics& metrics, size_t ids_kept_max)
    : workloads_(workloads), events_(events), metrics_(metrics), ids_kept_max_(ids_kept_max) {}

void NotificationCenter::SetMessenger(PeerMessenger* messenger) {
  const MutexLock lock(messenger_mutex_);
  messenger_ = messenger;
}

void NotificationCenter::Send(const std::string& peer, wire::Notification notification,
                              TimePoint deadline, DeliveryDone done) {
  SendBy(&PeerMessenger::Notify, peer, std::move(notification), deadline, std::move(done));
}

void NotificationCenter::SendOfTransfer(const std::string& peer, wire::Notification notification,
                                        TimePoint deadline, DeliveryDone done) {
  SendBy(&PeerMessenger::NotifyOfTransfer, peer, std::move(notification), deadline,
         std::move(done));
}

void NotificationCenter::SendBy(Method method, const std::string& peer,
                                wire::Notification notification, TimePoint deadline,
                                DeliveryDone done) {
  const DeliveryDone counted = [this, done = std::move(done)](const Status& outcome,
                                                              std::optional<microseconds> at_peer) {
    metrics_.NotificationEnded(metrics::NotificationDirection::kSent, OutcomeOf(outcome));
    done(outcome, at_peer);
  };
  if (peer.empty()) return counted(Deliver(std::move(notification)), std::nullopt);
  {
    const MutexLock lock(messenger_mutex_);
    if (messenger_ != nullptr) {
      return (messenger_->*method)(peer, std::move(notification), deadline, counted);
    }
  }
  counted(Fail(ErrorCode::kNotFound, "there is no peer '" + peer + "'",
               "PUT /v1/peers/" + peer + " first"),
          std::nullopt);
}

void NotificationCenter::SendAndReport(const std::string& peer, wire::Notification notification,
                                       TimePoint deadline) {
  auto report = std::make_shared<DeliveryReport>();
  report->to_peer = peer;
  report->to_workload = notification.content.to;
  report->request_id = notification.content.request_id;
  Event event;
  event.type = EventType::kNotificationOutcome;
  event.workload = notification.from_workload;
  event.workload_generation = notification.from_workload_generation;
  event.subject = notification.id;
  Send(peer, std::move(notification), deadline,
       [this, report = std::move(report), event = std::move(event)](
           const Status& outcome, std::optional<microseconds> at_peer) mutable {
         if (!outcome) report->error = outcome.error();
         report->at_peer = at_peer;
         event.delivery = std::move(report);
         events_.Append(std::move(event));
       });
}

Status NotificationCenter::Deliver(wire::Notification notification) {
  std::string key = KeyOf(notification);
  const uint64_t content = ContentOf(notification);
  const MutexLock lock(mutex_);
  if (const auto known = delivered_.find(key); known != delivered_.end()) {
    if (known->second == content) {
      metrics_.NotificationEnded(metrics::NotificationDirection::kReceived,
                                 metrics::NotificationOutcome::kRepeated);
      return {};
    }
    return Fail(ErrorCode::kConflict,
                "notification '" + notification.id + "' was sent before with another content",
                "use a new id for a new notification");
  }
  Status delivered = DeliverNew(std::move(notification));
  metrics_.NotificationEnded(metrics::NotificationDirection::kReceived, OutcomeOf(delivered));
  RETURN_IF_ERROR(delivered);
  delivered_.emplace(key, content);
  order_.push_back(std::move(key));
  if (order_.size() > ids_kept_max_) {
    delivered_.erase(order_.front());
    order_.pop_front();
  }
  return {};
}

Status NotificationCenter::DeliverNew(wire::Notification notification) {
  ASSIGN_OR_RETURN(const registry::WorkloadInfo receiver, workloads_.Get(notification.content.to));
  if (notification.content.to_generation != 0 &&
      notification.content.to_generation != receiver.generation) {
    return Fail(ErrorCode::kStaleGeneration,
                "workload '" + receiver.name + "' was registered anew since",
                "learn its new generation from whoever told the old one");
  }
  Event event;
  event.type = EventType::kNotification;
  event.workload = receiver.name;
  event.workload_generation = receiver.generation;
  event.subject = notification.id;
  event.notification = std::make_shared<const wire::Notification>(std::move(notification));
  return events_.AppendNotification(std::move(event));
}

void NotificationCenter::EndWorkload(const std::string& workload, uint64_t generation) {
  // After a delivery that saw the workload alive: nothing comes for it afterwards.
  const MutexLock lock(mutex_);
  events_.ForgetNotifications(workload, generation);
}

}  // namespace gantry::engine
