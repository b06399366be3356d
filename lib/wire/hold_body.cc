#include "lib/wire/hold_body.h"

#include <utility>

#include "lib/base/json_text.h"

namespace gantry::wire {

Status CheckHoldId(std::string_view id, std::string_view field) {
  const bool fits = !id.empty() && id.size() <= kHoldIdBytesMax;
  if (fits && IsUtf8(id)) return {};
  return Fail(ErrorCode::kInvalidArgument,
              fits ? "the id of the hold is not UTF-8"
                   : "the id of the hold has " + std::to_string(id.size()) + " bytes, not 1 to " +
                         std::to_string(kHoldIdBytesMax),
              {}, std::string(field));
}

namespace {

Status TakeBuffer(void* object, std::string&& name) {
  RETURN_IF_ERROR(CheckName(name, "this"));
  static_cast<HoldGroup*>(object)->buffers.push_back(std::move(name));
  return {};
}

constexpr Field BlocksField() {
  Field field{"blocks", FieldKind::kNumbers, kOptional, 0, kNumberMax};
  field.numbers = [](void* object) {
    auto& blocks = static_cast<HoldGroup*>(object)->blocks;
    return blocks ? &*blocks : &blocks.emplace();
  };
  return NotEmpty(field);  // so that an empty list is not taken for none
}

constexpr Field kHoldGroupFields[] = {
    NotEmpty(ReadTextField("buffers", FieldKind::kTexts, kRequired, TakeBuffer)),
    BlocksField(),
};
constexpr Schema kHoldGroup{kHoldGroupFields};

constexpr Field kHoldFields[] = {
    NameField<&HoldRequest::workload>("workload", kRequired),
    NotEmpty(ObjectsField<&HoldRequest::groups>("groups", kRequired, kHoldGroup)),
    NumberField<&HoldRequest::ttl_ms>("ttl_ms", kRequired, 1),
    NumberField<&HoldRequest::expected_consumers>("expected_consumers", kOptional, 1,
                                                  kHoldConsumersMax),
};
constexpr Field kExtensionFields[] = {
    NameField<&HoldExtension::workload>("workload", kRequired),
    NumberField<&HoldExtension::ttl_ms>("ttl_ms", kRequired, 1),
};

}  // namespace

Result<HoldRequest> ReadHoldBody(BodyFormat format, std::string_view body) {
  HoldRequest hold;
  RETURN_IF_ERROR(ReadBody(format, body, Schema{kHoldFields}, &hold));
  return hold;
}

Result<HoldExtension> ReadHoldExtension(BodyFormat format, std::string_view body) {
  HoldExtension extension;
  RETURN_IF_ERROR(ReadBody(format, body, Schema{kExtensionFields}, &extension));
  return extension;
}

}  // namespace gantry::wire
