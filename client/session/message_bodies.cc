#include "client/session/message_bodies.h"

#include "lib/base/base64.h"
#include "lib/base/json_text.h"
#include "lib/wire/notification.h"

namespace gantry::client {
namespace {

tl::unexpected<Error> Wrong(std::string what, std::string field) {
  return Fail(ErrorCode::kInvalidArgument, std::move(what), {}, std::move(field));
}

// {"key":"text","key":1, ... without the last brace.
class JsonObject {
 public:
  JsonObject& Text(std::string_view key, std::string_view text) {
    return Raw(key, JsonQuote(text));
  }
  JsonObject& Number(std::string_view key, uint64_t value) {
    return Raw(key, std::to_string(value));
  }
  JsonObject& Raw(std::string_view key, std::string_view json) {
    out_.append(out_.size() > 1 ? ",\"" : "\"").append(key).append("\":").append(json);
    return *this;
  }
  std::string Take() { return std::move(out_) + "}"; }

 private:
  std::string out_ = "{";
};

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
  JsonObject body;
  body.Text("workload", workload).Text("peer", peer).Text("to", message.to);
  body.Text("message", Base64Of({static_cast<const char*>(message.data), message.bytes}));
  if (message.request_id != nullptr) body.Text("request_id", message.request_id);
  if (deadline_ms != 0) body.Number("deadline_ms", deadline_ms);
  return body.Take();
}

Result<std::string> HoldBody(std::string_view workload, const gantry_hold_spec& spec) {
  if (spec.group_count == 0 || spec.groups == nullptr)
    return Wrong("the hold has no groups: it holds nothing", "groups");
  std::string groups = "[";
  for (size_t i = 0; i < spec.group_count; ++i) {
    const gantry_hold_group& group = spec.groups[i];
    const std::string at = "groups/" + std::to_string(i);
    if (group.buffer_count == 0 || group.buffers == nullptr)
      return Wrong("the group names no buffer", at);
    if (group.block_count != 0 && group.blocks == nullptr) return Wrong("blocks is NULL", at);
    std::string buffers = "[";
    for (size_t j = 0; j < group.buffer_count; ++j) {
      if (group.buffers[j] == nullptr) return Wrong("a buffer is NULL", at);
      buffers += (j == 0 ? "" : ",") + JsonQuote(group.buffers[j]);
    }
    std::string blocks = "[";
    for (size_t j = 0; j < group.block_count; ++j) {
      blocks += (j == 0 ? "" : ",") + std::to_string(group.blocks[j]);
    }
    JsonObject json;
    json.Raw("buffers", buffers + "]");
    if (group.block_count != 0) json.Raw("blocks", blocks + "]");
    groups += (i == 0 ? "" : ",") + json.Take();
  }
  JsonObject body;
  body.Text("workload", workload).Raw("groups", groups + "]").Number("ttl_ms", spec.ttl_ms);
  if (spec.expected_consumers != 0) body.Number("expected_consumers", spec.expected_consumers);
  return body.Take();
}

std::string HoldExtensionBody(std::string_view workload, uint64_t ttl_ms) {
  return JsonObject().Text("workload", workload).Number("ttl_ms", ttl_ms).Take();
}

}  // namespace gantry::client
