#include "sidecar/api/transfer_view.h"

#include "lib/base/base64.h"
#include "sidecar/api/buffer_view.h"

namespace gantry::api {
namespace {

void WriteError(const Error& error, wire::BodyWriter* writer) {
  writer->BeginObject()
      .Field("code", InfoOf(error.code).name)
      .Field("detail", error.message)
      .OptionalField("hint", error.hint)
      .EndObject();
}

}  // namespace

void WriteTransfer(const engine::TransferStatus& transfer, wire::BodyWriter* writer) {
  writer->BeginObject()
      .Field("id", transfer.id)
      .Field("workload", transfer.workload)
      .Field("peer", transfer.peer)
      .Field("op", NameOf(transfer.operation))
      .Field("state", NameOf(transfer.state))
      .Field("executor",
             NameOf(transfer.executed_by_peer ? wire::Executor::kPeer : wire::Executor::kSelf))
      .OptionalField("requested_by", transfer.requested_by)
      .Field("path", NameOf(transfer.path));
  WritePaths(transfer.paths, writer);
  writer->Field("bytes", transfer.bytes)
      .Field("bytes_moved", transfer.bytes_moved)
      .Field("chunks", transfer.chunks)
      .Field("chunks_moved", transfer.chunks_moved)
      .Field("descriptors_in", transfer.descriptors_in)
      .Field("descriptors_out", transfer.descriptors_out)
      .Field("workers", transfer.workers)
      .Field("priority", transfer.priority)
      .Field("retries", transfer.retries);
  if (transfer.staged_bytes > 0) writer->Field("staged_bytes", transfer.staged_bytes);
  if (transfer.gpu_copies) {
    writer->Key("gpu_copies")
        .BeginObject()
        .Field("plan", transfer.gpu_copies->plan())
        .Field("reason", transfer.gpu_copies->reason)
        .EndObject();
  }
  const engine::TransferTimings& timings = transfer.timings;
  writer->Key("timings")
      .BeginObject()
      .Field("accepted_unix_ms", timings.accepted_unix_ms)
      .Field("admit_us", timings.admit_us)
      .Field("fence_us", timings.fence_us)
      .Field("queue_us", timings.queue_us)
      .Field("move_us", timings.move_us)
      .Field("copy_us", timings.copy_us)
      .Field("total_us", timings.total_us)
      .EndObject();
  if (transfer.error) {
    writer->Key("error");
    WriteError(*transfer.error, writer);
  }
  if (transfer.failed_items != nullptr && !transfer.failed_items->empty()) {
    writer->Field("failed_items", *transfer.failed_items);
    if (transfer.failed_items_truncated) writer->Key("failed_items_truncated").Bool(true);
  }
  if (transfer.notified) writer->Field("notified", *transfer.notified);
  if (transfer.notify_error) {
    writer->Key("notify_error");
    WriteError(*transfer.notify_error, writer);
  }
  writer->OptionalField("user_data", transfer.user_data).EndObject();
}

namespace {

void WriteNotification(const wire::Notification& notification, wire::BodyWriter* writer) {
  writer->Key("notification")
      .BeginObject()
      .Field("from_peer", notification.from_peer)
      .Field("from_workload", notification.from_workload)
      .OptionalField("request_id", notification.content.request_id)
      .Field("message", Base64Of(notification.content.message))
      .EndObject();
}

void WriteDelivery(const engine::DeliveryReport& report, wire::BodyWriter* writer) {
  writer->Key("delivery")
      .BeginObject()
      .Field("peer", report.to_peer)
      .Field("to", report.to_workload)
      .OptionalField("request_id", report.request_id)
      .Field("delivered", !report.error);
  if (report.at_peer) writer->Field("peer_us", static_cast<uint64_t>(report.at_peer->count()));
  if (report.error) {
    writer->Key("error");
    WriteError(*report.error, writer);
  }
  writer->EndObject();
}

}  // namespace

void WriteEvent(const engine::Event& event, wire::BodyWriter* writer) {
  writer->BeginObject()
      .Field("sequence", event.sequence)
      .Field("type", NameOf(event.type))
      .OptionalField("workload", event.workload)
      .Field("subject", event.subject)
      .OptionalField("detail", event.detail);
  if (event.transfer != nullptr) {
    writer->Key("transfer");
    WriteTransfer(*event.transfer, writer);
  }
  if (event.notification != nullptr) WriteNotification(*event.notification, writer);
  if (event.delivery != nullptr) WriteDelivery(*event.delivery, writer);
  if (event.hold != nullptr) {
    writer->Key("hold")
        .BeginObject()
        .Field("outcome", NameOf(event.hold->state))
        .Field("consumers", event.hold->consumers)
        .EndObject();
  }
  writer->EndObject();
}

}  // namespace gantry::api
