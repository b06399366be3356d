#include "client/session/message_bodies.h"

#include <algorithm>
#include <span>

#include "lib/base/base64.h"
#include "lib/codec/body_writer.h"
#include "lib/wire/notification.h"

namespace gantry::client {
namespace {

using wire::BodyFormat;
using wire::BodyWriter;

tl::unexpected<Error> Wrong(std::string what, std::string field) {
  return Fail(ErrorCode::kInvalidArgument, std::move(what), {}, std::move(field));
}

}  // namespace

Status CheckMessage(const gantry_message& message) {
  if (message.to == nullptr) return Wrong("no workload to send it to", "to");
  if (message.data == nullptr && message.bytes != 0) return Wrong("data is NULL", "data");
  if (message.bytes <= wire::kNotificationBytesMax) return {};
  return Wrong("the message has " + std::to_string(message.bytes) + " bytes, and " +
                   std::to_string(wire::kNotificationBytesMax) + " at most",
               "bytes");
}

std::string NotificationBody(std::string_view workload, std::string_view peer,
                             const gantry_message& message, uint64_t deadline_ms) {
  BodyWriter body(BodyFormat::kJson);
  body.BeginObject().Field("workload", workload).Field("peer", peer).Field("to", message.to);
  body.Field("message", Base64Of({static_cast<const char*>(message.data), message.bytes}));
  if (message.request_id != nullptr) body.Field("request_id", message.request_id);
  if (deadline_ms != 0) body.Field("deadline_ms", deadline_ms);
  return body.EndObject().Take();
}

Result<std::string> HoldBody(std::string_view workload, const gantry_hold_spec& spec) {
  if (spec.group_count == 0 || spec.groups == nullptr)
    return Wrong("the hold has no groups: it holds nothing", "groups");
  BodyWriter body(BodyFormat::kJson);
  body.BeginObject().Field("workload", workload).Key("groups").BeginList();
  for (size_t i = 0; i < spec.group_count; ++i) {
    const gantry_hold_group& group = spec.groups[i];
    const std::span buffers(group.buffers, group.buffer_count);
    const std::string at = "groups/" + std::to_string(i);
    if (buffers.empty() || group.buffers == nullptr) return Wrong("the group names no buffer", at);
    if (group.block_count != 0 && group.blocks == nullptr) return Wrong("blocks is NULL", at);
    if (std::ranges::find(buffers, nullptr) != buffers.end()) return Wrong("a buffer is NULL", at);
    body.BeginObject().Field("buffers", buffers);
    if (group.block_count != 0) body.Field("blocks", std::span(group.blocks, group.block_count));
    body.EndObject();
  }
  body.EndList().Field("ttl_ms", spec.ttl_ms);
  if (spec.expected_consumers != 0) body.Field("expected_consumers", spec.expected_consumers);
  return body.EndObject().Take();
}

std::string HoldExtensionBody(std::string_view workload, uint64_t ttl_ms) {
  return BodyWriter(BodyFormat::kJson)
      .BeginObject()
      .Field("workload", workload)
      .Field("ttl_ms", ttl_ms)
      .EndObject()
      .Take();
}

}  // namespace gantry::client
