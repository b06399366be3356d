#include "lib/wire/request_bodies.h"

#include "lib/wire/notification_fields.h"

namespace gantry::wire {
namespace {

constexpr int64_t kEngineIdBytesMax = 256;
constexpr int64_t kNodeIdBytesMax = 128;
constexpr int64_t kPollEventsMax = 1024;

constexpr Field kWorkloadFields[] = {
    TextField<&WorkloadBody::engine_id>("engine_id", kOptional, kEngineIdBytesMax),
    NumberField<&WorkloadBody::ttl_ms>("ttl_ms", kOptional, 1),
};

constexpr Field kResolveFields[] = {
    NameField<&ResolveBody::workload>("workload", kRequired),
    NameField<&ResolveBody::buffer>("buffer", kRequired),
    NumberField<&ResolveBody::offset>("offset", kRequired),
    NumberField<&ResolveBody::length>("length", kRequired, 1),
};

constexpr Field BufferNamesField() {
  Field field{"buffers", FieldKind::kTexts, kOptional, 0, kTextBytesMax};
  field.enter = [](void* object) -> void* {
    static_cast<BufferNamesBody*>(object)->buffers.emplace();
    return object;
  };
  field.text = [](void* object, std::string&& name) -> Status {
    RETURN_IF_ERROR(CheckName(name, "this"));
    static_cast<BufferNamesBody*>(object)->buffers->push_back(std::move(name));
    return {};
  };
  return field;
}

Status TakeMemoryWord(void* object, std::string&& word) {
  if (word != "keep" && word != "release") {
    return Fail(ErrorCode::kInvalidArgument, "this is neither 'keep' nor 'release'");
  }
  static_cast<BufferNamesBody*>(object)->releases_memory = word == "release";
  return {};
}

constexpr Field kSuspendFields[] = {
    NameField<&BufferNamesBody::workload>("workload", kRequired),
    BufferNamesField(),
    NumberField<&BufferNamesBody::drain_ms>("drain_ms", kOptional),
    ReadTextField("memory", FieldKind::kText, kOptional, TakeMemoryWord),
};
constexpr Field kResumeFields[] = {
    NameField<&BufferNamesBody::workload>("workload", kRequired),
    BufferNamesField(),
};

constexpr Field kPeerFields[] = {
    TextField<&PeerBody::address>("address", kRequired, 256, 1),
    TextField<&PeerBody::node_id>("node_id", kOptional, kNodeIdBytesMax),
};

Status TakeTransfersWord(void* object, std::string&& word) {
  if (word != "all" && word != "none") {
    return Fail(ErrorCode::kInvalidArgument, "this is neither 'all' nor 'none'");
  }
  static_cast<PollBody*>(object)->has_transfers = word == "all";
  return {};
}

constexpr Field kPollFields[] = {
    NameField<&PollBody::workload>("workload", kRequired),
    NumberField<&PollBody::cursor>("cursor", kOptional),
    NumberField<&PollBody::max>("max", kOptional, 1, kPollEventsMax),
    NumberField<&PollBody::wait_ms>("wait_ms", kOptional),
    NumberField<&PollBody::acknowledge>("acknowledge", kOptional),
    ReadTextField("transfers", FieldKind::kText, kOptional, TakeTransfersWord),
};

constexpr Field PeerNameField() {
  return ReadTextField("peer", FieldKind::kText, kOptional,
                       [](void* object, std::string&& name) -> Status {
                         if (!name.empty()) RETURN_IF_ERROR(CheckName(name, "this"));
                         static_cast<NotificationBody*>(object)->peer = std::move(name);
                         return {};
                       });
}
NotificationContent& ContentAt(void* object) {
  return static_cast<NotificationBody*>(object)->content;
}
constexpr Field kNotificationFields[] = {
    NameField<&NotificationBody::id>("id", kOptional),
    NameField<&NotificationBody::workload>("workload", kRequired),
    PeerNameField(),
    NotificationToField<ContentAt>(),
    NotificationMessageField<ContentAt>(),
    NotificationRequestIdField<ContentAt>(),
    NumberField<&NotificationBody::deadline_ms>("deadline_ms", kOptional, 1),
};

template <typename Body>
Result<Body> Read(BodyFormat format, std::string_view text, std::span<const Field> fields) {
  Body body;
  RETURN_IF_ERROR(ReadBody(format, text, Schema{fields}, &body));
  return body;
}

}  // namespace

Result<WorkloadBody> ReadWorkloadBody(BodyFormat format, std::string_view body) {
  if (body.empty()) return WorkloadBody{};
  return Read<WorkloadBody>(format, body, kWorkloadFields);
}
Result<ResolveBody> ReadResolveBody(BodyFormat format, std::string_view body) {
  return Read<ResolveBody>(format, body, kResolveFields);
}
Result<BufferNamesBody> ReadSuspendBody(BodyFormat format, std::string_view body) {
  return Read<BufferNamesBody>(format, body, kSuspendFields);
}
Result<BufferNamesBody> ReadResumeBody(BodyFormat format, std::string_view body) {
  return Read<BufferNamesBody>(format, body, kResumeFields);
}
Result<PeerBody> ReadPeerBody(BodyFormat format, std::string_view body) {
  return Read<PeerBody>(format, body, kPeerFields);
}
Result<PollBody> ReadPollBody(BodyFormat format, std::string_view body) {
  return Read<PollBody>(format, body, kPollFields);
}
Result<NotificationBody> ReadNotificationBody(BodyFormat format, std::string_view body) {
  return Read<NotificationBody>(format, body, kNotificationFields);
}

}  // namespace gantry::wire
