#include "sidecar/api/notifications_endpoint.h"

#include "lib/base/random_id.h"
#include "lib/wire/request_bodies.h"
#include "sidecar/api/caller.h"
#include "sidecar/api/request_reading.h"

namespace gantry::api {
namespace {

constexpr uint64_t kDeadlineMs = 10'000;
constexpr uint64_t kDeadlineMsMax = 600'000;

}  // namespace

Result<http::Response> PostNotification(const ApiDependencies& api, const http::Request& request) {
  ASSIGN_OR_RETURN(const wire::BodyFormat format, BodyFormatOf(request));
  ASSIGN_OR_RETURN(wire::NotificationBody body, wire::ReadNotificationBody(format, request.body));
  ASSIGN_OR_RETURN(const uint64_t generation, AuthorizeFor(api.workloads, request, body.workload));
  const uint64_t deadline_ms = body.deadline_ms.value_or(kDeadlineMs);
  if (deadline_ms > kDeadlineMsMax) {
    return Fail(ErrorCode::kInvalidArgument,
                "deadline_ms is more than " + std::to_string(kDeadlineMsMax), {}, "/deadline_ms");
  }
  if (api.notifications == nullptr) {
    return Fail(ErrorCode::kPathUnavailable, "this sidecar carries no notifications");
  }
  wire::Notification notification;
  notification.from_workload = std::move(body.workload);
  notification.from_workload_generation = generation;
  notification.id = body.id.empty() ? "n-" + HexOf(RandomGeneration()) : std::move(body.id);
  notification.content = std::move(body.content);
  wire::BodyWriter writer = WriterFor(request);
  writer.BeginObject().Field("id", notification.id).EndObject();
  api.notifications->SendAndReport(body.peer, std::move(notification),
                                   Clock::now() + milliseconds(deadline_ms));
  return Reply(request, 202, std::move(writer));
}

}  // namespace gantry::api
