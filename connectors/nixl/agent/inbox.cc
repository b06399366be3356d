#include "connectors/nixl/agent/inbox.h"

#include <array>
#include <iterator>
#include <optional>
#include <utility>

#include "connectors/nixl/agent/plugin_log.h"
#include "lib/base/base64.h"
#include "lib/codec/body_fields.h"

namespace gantry::nixl {
namespace {

constexpr size_t kOverhead = 128;  // of a notification, besides its bytes

// All agents of the process share these.
log::RateLimiter lost_log, failed_log, dropped_log, half_log;

}  // namespace

void Inbox::Hear(const std::string& page, const Asked& asked) {
  static constexpr std::array<std::string_view, 9> kKeys = {"subject",       "type",    "from_peer",
                                                            "from_workload", "message", "lost",
                                                            "delivered",     "to",      "code"};
  const auto fields = wire::BodyFields::Read(page, kKeys);
  if (!fields) return;
  const MutexLock hearing(hearing_);
  if (const uint64_t lost = fields->Number("lost"); lost > 0)
    plugin_log::Seldom(lost_log,
                       std::to_string(lost) + " events were lost, perhaps notifications too");
  for (size_t i = 0;; ++i) {
    const std::string event = "events/" + std::to_string(i) + "/";
    const std::string type = fields->Text(event + "type");
    if (type.empty()) return;
    if (type == "notification_outcome") HearOutcome(*fields, event);
    if (type != "notification") continue;
    if (const Status heard = HearMessage(*fields, event + "notification/", asked); !heard)
      plugin_log::Seldom(dropped_log, "a notification is dropped", heard.error());
  }
}

void Inbox::HearOutcome(const wire::BodyFields& fields, const std::string& event) {
  const std::string id = fields.Text(event + "subject");
  if (fields.Flag(event + "delivery/delivered")) return outcomes_->Note(id, {});
  const std::string code = fields.Text(event + "delivery/error/code");
  Error error(ErrorCodeByName(code), "a notification to " + fields.Text(event + "delivery/to") +
                                         " was not delivered: " + code);
  plugin_log::Seldom(failed_log, error.message);
  outcomes_->Note(id, Fail(std::move(error)));
}

Status Inbox::HearMessage(const wire::BodyFields& fields, const std::string& at,
                          const Asked& asked) {
  ASSIGN_OR_RETURN(const std::string message, ParseBase64(fields.Text(at + "message")));
  if (IsLayoutRequest(message)) {
    ASSIGN_OR_RETURN(const LayoutRequest request, ReadLayoutRequest(message));
    asked(request);
    return {};
  }
  ASSIGN_OR_RETURN(auto joined, joiner_.Join(fields.Text(at + "from_peer"),
                                             fields.Text(at + "from_workload"), message));
  if (const size_t forgotten = joiner_.TakeForgotten(); forgotten > 0)
    plugin_log::Seldom(half_log, std::to_string(forgotten) +
                                     " notifications are dropped: not all "
                                     "of their parts came");
  if (!joined) return {};
  const MutexLock lock(mutex_);
  const size_t bytes = kOverhead + joined->first.size() + joined->second.size();
  arrived_.push_back(*std::move(joined));
  bytes_ += bytes;
  has_some_ = true;
  return {};
}

void Inbox::TakeAll(Notifications& taken) {
  if (!has_some_.load(std::memory_order_acquire)) return;
  const MutexLock lock(mutex_);
  std::move(arrived_.begin(), arrived_.end(), std::back_inserter(taken));
  arrived_.clear();
  bytes_ = 0;
  has_some_ = false;
}

}  // namespace gantry::nixl
