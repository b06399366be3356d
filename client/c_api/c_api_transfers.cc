// The functions of gantry.h for transfers, over WorkloadSession.
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "client/c_api/c_api_border.h"

namespace gantry::client {
namespace {

Result<std::vector<BufferPointer>> LocalBuffers(const gantry_client& client,
                                                const gantry_transfer_spec& spec) {
  std::vector<BufferPointer> buffers;
  for (size_t i = 0; i < spec.local_count; ++i) {
    const gantry_buffer* buffer = spec.local != nullptr ? spec.local[i] : nullptr;
    if (buffer == nullptr || buffer->session != client.session) {
      return Fail(ErrorCode::kInvalidArgument, "not a buffer of this client", {},
                  "local/" + std::to_string(i));
    }
    buffers.push_back(buffer->buffer);
  }
  if (buffers.empty() && spec.view == nullptr)
    return Fail(ErrorCode::kInvalidArgument, "no local buffer", {}, "local");
  return buffers;
}

Result<SubmitHandles> HandlesOf(const gantry_client& client, const gantry_transfer_spec& spec) {
  SubmitHandles handles;
  ASSIGN_OR_RETURN(handles.local, LocalBuffers(client, spec));
  if (spec.view != nullptr) {
    if (spec.view->session != client.session) {
      return Fail(ErrorCode::kInvalidArgument, "not a view of this client", {}, "view");
    }
    handles.view = spec.view->record;
  }
  if (spec.fence != nullptr) {
    const gantry_buffer* buffer = spec.fence->buffer;
    if (buffer == nullptr || buffer->session != client.session) {
      return Fail(ErrorCode::kInvalidArgument, "not a buffer of this client", {}, "fence");
    }
    handles.fence = buffer->buffer;
  }
  return handles;
}

Error OutcomeOf(const TransferRecord& record, const TransferAnswer& answer) {
  if (answer.error) return *answer.error;
  const ErrorCode code = answer.status.state == GANTRY_CANCELLED ? ErrorCode::kCancelled
                         : answer.status.state == GANTRY_EXPIRED ? ErrorCode::kDeadlineExceeded
                                                                 : ErrorCode::kInternal;
  return {code, "transfer '" + record.id() + "' did not succeed"};
}

}  // namespace
}  // namespace gantry::client

using namespace gantry;          // NOLINT: the functions below cannot be in a namespace
using namespace gantry::client;  // NOLINT

const char* gantry_path_name(size_t index) {
  return index < wire::kPaths.size() ? wire::NameOf(wire::kPaths[index]).data() : nullptr;
}

gantry_error* gantry_transfer_submit(gantry_client* client, const gantry_transfer_spec* spec,
                                     uint64_t wait_ms, gantry_transfer** transfer) {
  return EnterObject(client, [&]() -> Status {
    if (spec == nullptr || transfer == nullptr) {
      return Fail(ErrorCode::kInvalidArgument, "an argument is NULL", {},
                  spec == nullptr ? "spec" : "transfer");
    }
    ASSIGN_OR_RETURN(const SubmitHandles handles, HandlesOf(*client, *spec));
    auto handle = std::make_unique<gantry_transfer>();
    handle->session = client->session;
    ASSIGN_OR_RETURN(handle->record, client->session->transfers().Submit(*spec, handles, wait_ms));
    *transfer = handle.release();
    return {};
  });
}

const char* gantry_transfer_id(const gantry_transfer* transfer) {
  return transfer->record->id().c_str();
}

gantry_error* gantry_transfer_wait(gantry_transfer* transfer, uint64_t timeout_ms,
                                   gantry_transfer_status* status) {
  return EnterObject(transfer, [&]() -> Status {
    RETURN_IF_ERROR(transfer->session->transfers().Await(*transfer->record, timeout_ms));
    const gantry_transfer_status last = transfer->record->status();
    if (status != nullptr) *status = last;
    if (last.state <= GANTRY_SUCCEEDED) return {};
    return Fail(OutcomeOf(*transfer->record, transfer->record->last()));
  });
}

gantry_error* gantry_transfer_cancel(gantry_transfer* transfer, uint64_t timeout_ms,
                                     gantry_transfer_status* status) {
  return EnterObject(transfer, [&]() -> Status {
    RETURN_IF_ERROR(transfer->session->transfers().Cancel(*transfer->record, timeout_ms));
    if (status != nullptr) *status = transfer->record->status();
    return {};
  });
}

char* gantry_transfer_json(const gantry_transfer* transfer) {
  char* text = nullptr;
  gantry_error_destroy(EnterObject(transfer, [&]() -> Status {
    ASSIGN_OR_RETURN(const std::string json, transfer->record->last().Json());
    text = ::strdup(json.c_str());
    return {};
  }));
  return text;
}

void gantry_transfer_destroy(gantry_transfer* transfer) {
  Destroy(transfer, []() -> Status { return {}; });
}
