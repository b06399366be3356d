#include "lib/wire/registration_body.h"

#include "lib/base/base64.h"

namespace gantry::wire {
namespace {

Status TakeKind(void* object, std::string&& text) {
  const auto kind = MemoryKindByName(text);
  if (!kind) {
    return Fail(ErrorCode::kInvalidArgument, "there is no such kind of memory",
                "GET /v1/info lists the kinds");
  }
  static_cast<AllocationSpec*>(object)->kind = *kind;
  return {};
}

Status TakeIpcHandle(void* object, std::string&& text) {
  auto bytes = ParseBase64(text);
  if (!bytes || bytes->size() != kIpcHandleBytes) {
    return Fail(ErrorCode::kInvalidArgument, "a handle is the base64 of 64 bytes");
  }
  static_cast<AllocationSpec*>(object)->ipc_handle = *std::move(bytes);
  return {};
}

Status TakeNonce(void* object, std::string&& text) {
  auto bytes = ParseBase64(text);
  if (!bytes || bytes->empty() || bytes->size() > kNonceBytesMax) {
    return Fail(ErrorCode::kInvalidArgument, "a nonce is the base64 of 1 to 16 bytes");
  }
  static_cast<NoncePlace*>(object)->nonce = *std::move(bytes);
  return {};
}

BufferSpec& SpecAt(void* object) { return *static_cast<BufferSpec*>(object); }

Status TakeAccess(void* object, std::string&& text) {
  wire::Access& access = SpecAt(object).access;
  if (text != kRemoteRead && text != kRemoteWrite) {
    return Fail(ErrorCode::kInvalidArgument,
                "access is a list of \"remote_read\" and \"remote_write\"");
  }
  (text == kRemoteRead ? access.remote_read : access.remote_write) = true;
  return {};
}

// A list of access rights replaces the default, an empty one too.
constexpr Field AccessField() {
  Field field = ReadTextField("access", FieldKind::kTexts, kOptional, TakeAccess);
  field.enter = [](void* object) -> void* {
    SpecAt(object).access = {};
    return object;
  };
  return field;
}

void* AddBuffer(void* object) {
  BufferSpec& spec = static_cast<RegistrationRequest*>(object)->buffers.emplace_back();
  spec.access.remote_read = true;
  return &spec;
}

constexpr Field kDmaBufFields[] = {
    TextField<&DmaBufSpec::fd_token>("fd_token", kRequired, kTextBytesMax, 1),
    NumberField<&DmaBufSpec::offset>("offset", kRequired),
    NumberField<&DmaBufSpec::size>("size", kRequired, 1),
};
constexpr Schema kDmaBuf{kDmaBufFields};

constexpr Field FdOffsetField() {
  Field field{"fd_offset", FieldKind::kNumber, kOptional, 0, kNumberMax};
  field.number = [](void* object, int64_t value) {
    static_cast<AllocationSpec*>(object)->fd_offset = static_cast<uint64_t>(value);
  };
  return field;
}

constexpr Field kAllocationFields[] = {
    ReadTextField("kind", FieldKind::kText, kRequired, TakeKind),
    TextField<&AllocationSpec::fd_token>("fd_token", kOptional, kTextBytesMax, 1),
    NumberField<&AllocationSpec::size>("size", kRequired, 1),
    TextField<&AllocationSpec::device_uuid>("device_uuid", kOptional, kDeviceUuidBytesMax, 1),
    NumberField<&AllocationSpec::buffer_id>("buffer_id", kOptional, 1),
    NumberField<&AllocationSpec::pid>("pid", kOptional, 1),
    NumberField<&AllocationSpec::base>("base", kOptional, 1),
    FdOffsetField(),
    ReadTextField("ipc_handle", FieldKind::kText, kOptional, TakeIpcHandle),
    ObjectField<&AllocationSpec::dma_buf>("dma_buf", kOptional, kDmaBuf),
    TextField<&AllocationSpec::no_dma_buf_because>("no_dma_buf_because", kOptional,
                                                   kNoDmaBufBytesMax, 1),
};
constexpr Schema kAllocation{kAllocationFields};

constexpr Field kPieceFields[] = {
    NumberField<&Piece::allocation>("allocation", kRequired),
    NumberField<&Piece::offset>("offset", kRequired),
    NumberField<&Piece::length>("length", kRequired, 1),
};
constexpr Schema kPiece{kPieceFields};

constexpr Field kLayoutFields[] = {
    NumberField<&BlockLayout::block_bytes>("block_bytes", kRequired, 1),
    NumberField<&BlockLayout::block_stride>("block_stride", kRequired, 1),
    NumberField<&BlockLayout::blocks>("blocks", kRequired, 1),
};
constexpr Schema kLayout{kLayoutFields};

constexpr Field kPlaceFields[] = {
    NumberField<&NoncePlace::offset>("offset", kRequired),
    ReadTextField("nonce", FieldKind::kText, kRequired, TakeNonce),
};
constexpr Schema kPlace{kPlaceFields};

constexpr Field kBufferFields[] = {
    NameField<&BufferSpec::name>("name", kRequired),
    NotEmpty(ObjectsField<&BufferSpec::pieces>("pieces", kRequired, kPiece)),
    AccessField(),
    ObjectField<&BufferSpec::layout>("layout", kOptional, kLayout),
    NotEmpty(ObjectsField<&BufferSpec::verify>("verify", kOptional, kPlace)),
};
constexpr Schema kBuffer{kBufferFields};

constexpr Field BuffersField() {
  Field field{"buffers", FieldKind::kObjects, kRequired};
  field.enter = AddBuffer;
  field.schema = &kBuffer;
  return NotEmpty(field);
}

constexpr Field kBodyFields[] = {
    NameField<&RegistrationRequest::workload>("workload", kRequired),
    ObjectsField<&RegistrationRequest::allocations>("allocations", kRequired, kAllocation),
    BuffersField(),
};
constexpr Schema kBody{kBodyFields};

}  // namespace

Result<RegistrationRequest> ReadRegistrationBody(BodyFormat format, std::string_view body) {
  RegistrationRequest request;
  RETURN_IF_ERROR(ReadBody(format, body, kBody, &request));
  return request;
}

}  // namespace gantry::wire
