#include "lib/wire/transfers_body.h"

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

Status TakePath(void* object, std::string&& text) {
  const auto path = PathByName(text);
  if (!path) {
    return Fail(ErrorCode::kInvalidArgument, "there is no such path",
                "the paths are ipc, shm, rdma and tcp");
  }
  RequestAt(object).require_path.push_back(*path);
  return {};
}

constexpr Need kRequired = Need::kRequired;
constexpr Need kOptional = Need::kOptional;

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

constexpr Field kTransferFields[] = {
    NameField<&TransferRequest::id>("id", kOptional),
    NameField<&TransferRequest::workload>("workload", kRequired),
    ReadTextField("op", FieldKind::kText, kRequired, TakeOperation),
    NotEmpty(ReadTextField("local", FieldKind::kTexts, kRequired, TakeLocal)),
    NotEmpty(ReadTextField("remote", FieldKind::kTexts, kRequired, TakeRemote)),
    NotEmpty(NumbersField<&TransferRequest::local_blocks>("local_blocks", kOptional)),
    NotEmpty(NumbersField<&TransferRequest::remote_blocks>("remote_blocks", kOptional)),
    NotEmpty(ObjectsField<&TransferRequest::ranges>("ranges", kOptional, kRange)),
    NumberField<&TransferRequest::deadline_ms>("deadline_ms", kOptional, 1),
    NumberField<&TransferRequest::priority>("priority", kOptional, -kPriorityMax, kPriorityMax),
    ReadTextField("require_path", FieldKind::kTexts, kOptional, TakePath),
    TextField<&TransferRequest::user_data>("user_data", kOptional, kUserDataBytesMax),
    ObjectField<&TransferRequest::notify>("notify", kOptional, kNotify),
};
constexpr Schema kTransfer{kTransferFields};

tl::unexpected<Error> Refuse(std::string message, std::string field) {
  return Fail(ErrorCode::kInvalidArgument, std::move(message), {}, std::move(field));
}

// What the schema cannot say: ranges or block lists, one of them.
Status CheckShape(TransferRequest& request, const std::string& at) {
  request.by_blocks = !request.local_blocks.empty() || !request.remote_blocks.empty();
  if (request.by_blocks && !request.ranges.empty()) {
    return Refuse("a transfer has ranges or block lists, not both", at + "/ranges");
  }
  if (!request.by_blocks && request.ranges.empty()) {
    return Refuse("a transfer names at least one range or block", at + "/ranges");
  }
  if (request.local_blocks.size() != request.remote_blocks.size()) {
    return Refuse("there are " + std::to_string(request.local_blocks.size()) + " local and " +
                      std::to_string(request.remote_blocks.size()) +
                      " remote blocks; they pair up one by one",
                  at + "/remote_blocks");
  }
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
