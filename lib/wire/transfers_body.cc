#include "lib/wire/transfers_body.h"

#include <algorithm>
#include <utility>

#include "lib/base/json_text.h"
#include "lib/wire/hold.h"
#include "lib/wire/notification_fields.h"

namespace gantry::wire {
namespace {

TransferRequest& RequestAt(void* object) { return *static_cast<TransferRequest*>(object); }

Status TakeOperation(void* object, std::string&& text) {
  const auto operation = OperationByName(text);
  if (!operation) return Fail(ErrorCode::kInvalidArgument, "op is \"read\" or \"write\"");
  RequestAt(object).operation = *operation;
  return {};
}

Status TakeLocal(void* object, std::string&& text) {
  ASSIGN_OR_RETURN(BufferReference reference, ParseReference(text, "/local", 1));
  RequestAt(object).local.push_back(std::move(reference));
  return {};
}

Status TakeRemote(void* object, std::string&& text) {
  ASSIGN_OR_RETURN(BufferReference reference, ParseReference(text, "/remote", 3));
  RequestAt(object).remote.push_back(std::move(reference));
  return {};
}

Status TakeFenceType(void* object, std::string&& text) {
  if (text == "ipc_event") {
    return Fail(
        ErrorCode::kInvalidArgument,
        "fences of the type ipc_event are not in this version: whether an exported event "
        "orders the copies of another process has not been probed",
        "use a timeline fence, which streams can raise (gantry_timeline.h), or synchronise before "
        "submitting");
  }
  if (text != "none" && text != "timeline") {
    return Fail(ErrorCode::kInvalidArgument, "there is no such fence",
                "the types are none and timeline");
  }
  static_cast<TimelineFence*>(object)->waits = text == "timeline";
  return {};
}

Status TakeFenceBuffer(void* object, std::string&& text) {
  ASSIGN_OR_RETURN(static_cast<TimelineFence*>(object)->buffer,
                   ParseReference(text, "/fence/buffer", 1));
  return {};
}

Status TakePath(void* object, std::string&& text) {
  const auto path = PathByName(text);
  if (!path) {
    return Fail(ErrorCode::kInvalidArgument, "there is no path " + JsonQuote(text),
                "the paths are " + PathNames());
  }
  RequestAt(object).require_path.push_back(*path);
  return {};
}

Status TakeHold(void* object, std::string&& text) {
  RETURN_IF_ERROR(CheckHoldId(text, "this"));
  RequestAt(object).hold = std::move(text);
  return {};
}

Status TakeExecutor(void* object, std::string&& text) {
  const auto executor = ExecutorByName(text);
  if (!executor) {
    return Fail(ErrorCode::kInvalidArgument, "executor is \"any\", \"self\" or \"peer\"");
  }
  RequestAt(object).executor = *executor;
  return {};
}

constexpr Field kRangeFields[] = {
    NumberField<&TransferRange::local_index>("local", kRequired),
    NumberField<&TransferRange::local_offset>("local_offset", kRequired),
    NumberField<&TransferRange::remote_index>("remote", kRequired),
    NumberField<&TransferRange::remote_offset>("remote_offset", kRequired),
    NumberField<&TransferRange::length>("length", kRequired),
};
constexpr Schema kRange{kRangeFields, /*tuple=*/true};

NotificationContent& ContentOf(void* object) { return *static_cast<NotificationContent*>(object); }
constexpr Field kNotifyFields[] = {
    NotificationToField<ContentOf>(),
    NotificationMessageField<ContentOf>(),
    NotificationRequestIdField<ContentOf>(),
};
constexpr Schema kNotify{kNotifyFields};

// The list is named, however many blocks it has.
template <std::vector<uint64_t> TransferRequest::*blocks, bool TransferRequest::*is_named>
constexpr Field BlocksField(std::string_view name) {
  Field field = NumbersField<blocks>(name, kOptional);
  field.numbers = [](void* object) {
    RequestAt(object).*is_named = true;
    return &(RequestAt(object).*blocks);
  };
  return field;
}

constexpr Field kTransferGroupFields[] = {
    NumberField<&TransferGroup::group>("group", kRequired),
    NumbersField<&TransferGroup::local_blocks>("local_blocks", kRequired),
    NumbersField<&TransferGroup::remote_blocks>("remote_blocks", kRequired),
    NotEmpty(NumbersField<&TransferGroup::layers>("layers", kOptional), 2),
};
constexpr Schema kTransferGroup{kTransferGroupFields};

constexpr Field kFenceFields[] = {
    ReadTextField("type", FieldKind::kText, kRequired, TakeFenceType),
    ReadTextField("buffer", FieldKind::kText, kOptional, TakeFenceBuffer),
    NumberField<&TimelineFence::offset>("offset", kOptional),
    NumberField<&TimelineFence::value>("value", kOptional, 1),
};
constexpr Schema kFence{kFenceFields};

constexpr Field kTransferFields[] = {
    NameField<&TransferRequest::id>("id", kOptional),
    NameField<&TransferRequest::workload>("workload", kRequired),
    ReadTextField("op", FieldKind::kText, kRequired, TakeOperation),
    NotEmpty(ReadTextField("local", FieldKind::kTexts, kOptional, TakeLocal)),
    NotEmpty(ReadTextField("remote", FieldKind::kTexts, kOptional, TakeRemote)),
    NameField<&TransferRequest::view>("view", kOptional),
    NotEmpty(ObjectsField<&TransferRequest::groups>("groups", kOptional, kTransferGroup)),
    NotEmpty(NumbersField<&TransferRequest::layers>("layers", kOptional), 2),
    BlocksField<&TransferRequest::local_blocks, &TransferRequest::has_local_blocks>("local_blocks"),
    BlocksField<&TransferRequest::remote_blocks, &TransferRequest::has_remote_blocks>(
        "remote_blocks"),
    NotEmpty(ObjectsField<&TransferRequest::ranges>("ranges", kOptional, kRange)),
    ObjectField<&TransferRequest::fence>("fence", kOptional, kFence),
    NumberField<&TransferRequest::deadline_ms>("deadline_ms", kOptional, 1),
    NumberField<&TransferRequest::priority>("priority", kOptional, -kPriorityMax, kPriorityMax),
    ReadTextField("require_path", FieldKind::kTexts, kOptional, TakePath),
    ReadTextField("executor", FieldKind::kText, kOptional, TakeExecutor),
    TextField<&TransferRequest::user_data>("user_data", kOptional, kUserDataBytesMax),
    ReadTextField("hold", FieldKind::kText, kOptional, TakeHold),
    NumberField<&TransferRequest::hold_consumers>("hold_consumers", kOptional, 0,
                                                  kHoldConsumersMax),
    ObjectField<&TransferRequest::notify>("notify", kOptional, kNotify),
};
constexpr Schema kTransfer{kTransferFields};

tl::unexpected<Error> Refuse(std::string message, std::string field) {
  return Fail(ErrorCode::kInvalidArgument, std::move(message), {}, std::move(field));
}

tl::unexpected<Error> Missing(std::string field) {
  return Fail(ErrorCode::kMalformedBody, "the field is missing", {}, std::move(field));
}

Status CheckLayers(const std::vector<uint64_t>& layers, const std::string& at) {
  if (layers.size() <= 2 && std::is_sorted(layers.begin(), layers.end())) return {};
  return Refuse("layers are the first and the last pair", at + "/layers");
}

// Of a transfer by view: its blocks are in groups or in the lists of group 0.
Status CheckViewShape(const TransferRequest& request, const std::string& at) {
  if (!request.local.empty() || !request.remote.empty() || !request.ranges.empty()) {
    return Refuse("a view stands for the buffers, and its blocks for the ranges",
                  at + (request.ranges.empty() ? "/view" : "/ranges"));
  }
  const bool has_lists = request.has_local_blocks || request.has_remote_blocks;
  if (request.groups.empty() && !(request.has_local_blocks && request.has_remote_blocks)) {
    return Refuse("a transfer by view names blocks of both sides, or groups of them",
                  at + (request.has_local_blocks ? "/remote_blocks" : "/local_blocks"));
  }
  if (!request.groups.empty() && (has_lists || !request.layers.empty())) {
    return Refuse("with groups, block lists and layers stand within them", at + "/groups");
  }
  RETURN_IF_ERROR(CheckLayers(request.layers, at));
  for (size_t i = 0; i < request.groups.size(); ++i) {
    RETURN_IF_ERROR(CheckLayers(request.groups[i].layers, at + "/groups/" + std::to_string(i)));
  }
  return {};
}

// What the schema cannot say: a view, ranges or block lists, one of them.
Status CheckShape(TransferRequest& request, const std::string& at) {
  if (request.fence && !request.fence->waits) request.fence.reset();
  if (request.fence && request.fence->buffer.buffer.empty()) return Missing(at + "/fence/buffer");
  if (request.fence && request.fence->value == 0) return Missing(at + "/fence/value");
  if (!request.hold.empty() && request.operation != Operation::kRead) {
    return Refuse("what is held is read, not written", at + "/hold");
  }
  if (request.hold.empty() && request.hold_consumers != 1) {
    return Refuse("it counts those who read a hold, and the transfer names none",
                  at + "/hold_consumers");
  }
  request.by_blocks =
      !request.view.empty() || request.has_local_blocks || request.has_remote_blocks;
  if (!request.view.empty()) return CheckViewShape(request, at);
  if (request.local.empty()) return Missing(at + "/local");
  if (request.remote.empty()) return Missing(at + "/remote");
  if (!request.groups.empty() || !request.layers.empty()) {
    return Refuse("groups and layers are those of a view", at + "/view");
  }
  if (request.by_blocks && !request.ranges.empty()) {
    return Refuse("a transfer has ranges or block lists, not both", at + "/ranges");
  }
  if (!request.by_blocks && request.ranges.empty()) {
    return Refuse("a transfer names ranges, or lists of blocks", at + "/ranges");
  }
  if (request.local_blocks.size() != request.remote_blocks.size()) {
    return Refuse("there are " + std::to_string(request.local_blocks.size()) + " local and " +
                      std::to_string(request.remote_blocks.size()) +
                      " remote blocks; they pair up one by one",
                  at + "/remote_blocks");
  }
  if (request.by_blocks && !request.has_remote_blocks) return Missing(at + "/remote_blocks");
  if (request.by_blocks && !request.has_local_blocks) return Missing(at + "/local_blocks");
  return {};
}

}  // namespace

Result<TransferBody> ReadTransferBody(BodyFormat format, std::string_view body) {
  TransferBody transfers;
  Field root{"", FieldKind::kObjectOrObjects, kRequired};
  root.enter = [](void* object) -> void* {
    return &static_cast<TransferBody*>(object)->requests.emplace_back();
  };
  root.schema = &kTransfer;
  RETURN_IF_ERROR(ReadBodies(format, body, root, &transfers, &transfers.is_list));
  if (transfers.requests.size() > kTransfersPerBodyMax) {
    return Fail(ErrorCode::kBodyTooLarge,
                "the list has more than " + std::to_string(kTransfersPerBodyMax) + " transfers");
  }
  for (size_t i = 0; i < transfers.requests.size(); ++i) {
    RETURN_IF_ERROR(CheckShape(transfers.requests[i],
                               transfers.is_list ? "/" + std::to_string(i) : std::string()));
  }
  return transfers;
}

}  // namespace gantry::wire
