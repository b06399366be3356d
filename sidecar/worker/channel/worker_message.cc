#include "sidecar/worker/channel/worker_message.h"

#include <cstring>

namespace gantry::worker {
namespace {

template <typename Message>
bool Parse(std::string_view bytes, Message* message) {
  if (bytes.size() != sizeof(*message)) return false;
  std::memcpy(message, bytes.data(), sizeof(*message));
  return true;
}

}  // namespace

void SetGpuFacts(const wire::GpuFacts& facts, WorkerRequest* request) {
  request->on_gpu = 1;
  request->gpu_export = static_cast<uint32_t>(facts.form);
  request->fd_offset = facts.fd_offset;
  request->exporter_pid = facts.exporter_pid;
  request->buffer_id = facts.buffer_id;
  facts.device_uuid.copy(request->device_uuid, sizeof(request->device_uuid) - 1);
}

wire::GpuFacts GpuFactsOf(const WorkerRequest& request) {
  const size_t bytes = ::strnlen(request.device_uuid, sizeof(request.device_uuid));
  const bool known = request.gpu_export < wire::kGpuExportCount;
  return {known ? static_cast<wire::GpuExport>(request.gpu_export) : wire::GpuExport::kHandle,
          std::string(request.device_uuid, bytes), request.buffer_id, request.exporter_pid,
          request.fd_offset};
}

WorkerAnswer AnswerOf(uint64_t number, const Status& status) {
  WorkerAnswer answer;
  answer.number = number;
  if (status) return answer;
  answer.ok = 0;
  answer.code = static_cast<uint32_t>(status.error().code);
  status.error().message.copy(answer.message, sizeof(answer.message) - 1);
  status.error().hint.copy(answer.hint, sizeof(answer.hint) - 1);
  return answer;
}

Status StatusOf(const WorkerAnswer& answer) {
  if (answer.ok != 0) return {};
  const bool known = answer.code < static_cast<uint32_t>(kErrorCodeCount);
  const std::string_view message(answer.message, ::strnlen(answer.message, sizeof(answer.message)));
  const std::string_view hint(answer.hint, ::strnlen(answer.hint, sizeof(answer.hint)));
  return Fail(known ? static_cast<ErrorCode>(answer.code) : ErrorCode::kInternal,
              std::string(message), std::string(hint));
}

bool ParseMessage(std::string_view bytes, WorkerRequest* request) { return Parse(bytes, request); }
bool ParseMessage(std::string_view bytes, WorkerAnswer* answer) { return Parse(bytes, answer); }

}  // namespace gantry::worker
