#include "client/session/client_json.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "lib/base/base64.h"
#include "lib/codec/body_fields.h"
#include "lib/codec/body_writer.h"
#include "lib/codec/json_text_of.h"
#include "lib/http/reply_problem.h"
#include "lib/wire/registration_body.h"
#include "lib/wire/transfer_request.h"

namespace gantry::client {
namespace {

using wire::BodyFields;
using wire::BodyFormat;
using wire::BodyWriter;

// In the order of GANTRY_QUEUED and following.
constexpr std::array<std::string_view, 7> kStates = {"queued", "running",   "stopping", "succeeded",
                                                     "failed", "cancelled", "expired"};

tl::unexpected<Error> NotUnderstood(std::string_view what) {
  return Fail(ErrorCode::kVersionMismatch,
              "the sidecar's answer has no " + std::string(what) + " that this library understands",
              "use a libgantry.so of the sidecar's version");
}

// What is the same for all pieces of one allocation.
const void* AllocationOf(const ResolvedPiece& piece) {
  if (const auto* extent = std::get_if<Extent>(&piece)) return extent->arena.get();
  return std::get<GpuPiece>(piece).allocation.get();
}

void WriteArena(BodyWriter& out, const Arena& arena) {
  out.BeginObject().Field("kind", "host").Field("fd_token", arena.fd_token);
  out.Field("size", arena.bytes()).EndObject();
}

void WriteGpuAllocation(BodyWriter& out, const GpuAllocation& allocation) {
  out.BeginObject().Field("kind", "gpu").Field("size", allocation.range.size);
  out.Field("device_uuid", allocation.device_uuid).Field("buffer_id", allocation.buffer_id);
  // In the namespace of this process: a handle is not opened by a process of the same number.
  out.Field("pid", ::getpid());
  if (allocation.fd_token.empty()) {
    const auto& handle = allocation.ipc_handle.bytes;
    out.Field("ipc_handle",
              Base64Of({reinterpret_cast<const char*>(handle.data()), handle.size()}));
  } else {
    out.Field("fd_token", allocation.fd_token);
    if (allocation.fd_offset) out.Field("fd_offset", *allocation.fd_offset);
  }
  if (const wire::DmaBufSpec& dma_buf = allocation.dma_buf; !dma_buf.fd_token.empty()) {
    out.Key("dma_buf").BeginObject().Field("fd_token", dma_buf.fd_token);
    out.Field("offset", dma_buf.offset).Field("size", dma_buf.size).EndObject();
  } else {
    out.OptionalField("no_dma_buf_because", allocation.no_dma_buf_because);
  }
  out.EndObject();
}

void WritePiece(BodyWriter& out, const ResolvedPiece& piece, size_t allocation) {
  out.BeginObject().Field("allocation", allocation);
  std::visit(
      [&](const auto& part) { out.Field("offset", part.offset).Field("length", part.bytes); },
      piece);
  out.EndObject();
}

// Writes the members of a buffer behind its pieces.
void WriteRest(BodyWriter& out, const BufferRequest& buffer) {
  out.Key("access").BeginList();
  if (buffer.access.remote_read) out.Text(wire::kRemoteRead);
  if (buffer.access.remote_write) out.Text(wire::kRemoteWrite);
  out.EndList();
  if (buffer.layout) {
    out.Key("layout").BeginObject().Field("block_bytes", buffer.layout->block_bytes);
    out.Field("block_stride", buffer.layout->block_stride);
    out.Field("blocks", buffer.layout->blocks).EndObject();
  }
  if (buffer.verify.empty()) return;
  out.Key("verify").BeginList();
  for (const wire::NoncePlace& place : buffer.verify) {
    out.BeginObject().Field("offset", place.offset);
    out.Field("nonce", Base64Of(place.nonce)).EndObject();
  }
  out.EndList();
}

}  // namespace

Result<std::string> TransferAnswer::Json() const {
  if (auto json = wire::JsonOf(body)) return *std::move(json);
  return NotUnderstood("text");
}

std::string LeaseBody(std::string_view engine_id) {
  BodyWriter body(BodyFormat::kJson);
  return body.BeginObject().OptionalField("engine_id", engine_id).EndObject().Take();
}

std::string RegistrationBody(std::string_view workload, std::span<const BufferRequest> buffers) {
  std::map<const void*, size_t> indices;
  BodyWriter body(BodyFormat::kJson);
  body.BeginObject().Field("workload", workload).Key("allocations").BeginList();
  for (const BufferRequest& buffer : buffers) {
    for (const ResolvedPiece& piece : buffer.pieces) {
      if (!indices.emplace(AllocationOf(piece), indices.size()).second) continue;
      if (const auto* extent = std::get_if<Extent>(&piece)) {
        WriteArena(body, *extent->arena);
      } else {
        WriteGpuAllocation(body, *std::get<GpuPiece>(piece).allocation);
      }
    }
  }
  body.EndList().Key("buffers").BeginList();
  for (const BufferRequest& buffer : buffers) {
    body.BeginObject().Field("name", buffer.name).Key("pieces").BeginList();
    for (const ResolvedPiece& piece : buffer.pieces) {
      WritePiece(body, piece, indices.at(AllocationOf(piece)));
    }
    body.EndList();
    WriteRest(body, buffer);
    body.EndObject();
  }
  return body.EndList().EndObject().Take();
}

std::string SuspensionBody(std::string_view workload, const std::vector<std::string>* names,
                           std::optional<uint64_t> drain_ms, std::string_view memory) {
  BodyWriter body(BodyFormat::kJson);
  body.BeginObject().Field("workload", workload);
  if (names != nullptr) body.Field("buffers", *names);
  if (drain_ms) body.Field("drain_ms", *drain_ms);
  return body.OptionalField("memory", memory).EndObject().Take();
}

Result<LeaseAnswer> ReadLease(std::string_view body) {
  static constexpr std::array<std::string_view, 5> kKeys = {
      "lease_token", "generation", "handoff_socket", "wants_dma_bufs", "takes_unsealed_memory"};
  const auto fields = BodyFields::Read(body, kKeys);
  if (!fields) return NotUnderstood("lease");
  LeaseAnswer answer = {fields->Text("lease_token"), fields->Text("generation"),
                        fields->Text("handoff_socket"), fields->Flag("wants_dma_bufs"),
                        fields->Flag("takes_unsealed_memory")};
  if (answer.lease_token.empty() || answer.generation.empty()) return NotUnderstood("lease");
  return answer;
}

Result<std::vector<BufferAnswer>> ReadBuffers(std::string_view body) {
  static constexpr std::array<std::string_view, 3> kKeys = {"name", "id", "generation"};
  const auto fields = BodyFields::Read(body, kKeys);
  std::vector<BufferAnswer> buffers;
  while (fields) {
    const std::string prefix = "buffers/" + std::to_string(buffers.size()) + "/";
    BufferAnswer buffer;
    buffer.id = fields->Text(prefix + "id");
    buffer.name = fields->Text(prefix + "name");
    buffer.generation = fields->Text(prefix + "generation");
    if (buffer.id.empty() || buffer.generation.empty()) break;
    buffers.push_back(std::move(buffer));
  }
  if (buffers.empty()) return NotUnderstood("list of buffers");
  return buffers;
}

Result<ViewAnswer> ReadView(std::string body) {
  static constexpr std::array<std::string_view, 5> kKeys = {"id", "pair_count", "bytes_per_block",
                                                            "group", "local"};
  const auto fields = BodyFields::Read(body, kKeys);
  if (!fields || fields->Text("id").empty()) return NotUnderstood("view");
  ViewAnswer answer;
  answer.id = fields->Text("id");
  answer.pair_count = fields->Number("pair_count");
  answer.bytes_per_block = fields->Number("bytes_per_block");
  while (true) {
    const std::string prefix = "pairs/" + std::to_string(answer.pairs.size()) + "/";
    const uint64_t group = fields->Number(prefix + "group");
    std::string local = fields->Text(prefix + "local");
    if (local.empty()) break;
    local.resize(std::min(local.find('@'), local.size()));
    answer.pairs.push_back({group, std::move(local)});
  }
  answer.json = std::move(body);
  return answer;
}

Result<TransferAnswer> ReadTransfer(std::string body) {
  static constexpr std::array<std::string_view, 21> kKeys = {
      "state",        "path",           "bytes",           "bytes_moved", "chunks",
      "chunks_moved", "descriptors_in", "descriptors_out", "workers",     "admit_us",
      "fence_us",     "queue_us",       "move_us",         "copy_us",     "total_us",
      "code",         "detail",         "title",           "hint",        "field",
      "executor"};
  const auto fields = BodyFields::Read(body, kKeys);
  if (!fields) return NotUnderstood("transfer");
  const auto state = std::find(kStates.begin(), kStates.end(), fields->Text("state"));
  if (state == kStates.end()) return NotUnderstood("state of a transfer");
  TransferAnswer answer;
  gantry_transfer_status& status = answer.status;
  status.state = static_cast<int>(state - kStates.begin());
  status.executor = static_cast<int>(
      wire::ExecutorByName(fields->Text("executor")).value_or(wire::Executor::kAny));
  fields->Text("path").copy(status.path, sizeof(status.path) - 1);
  status.bytes = fields->Number("bytes");
  status.bytes_moved = fields->Number("bytes_moved");
  status.chunks = fields->Number("chunks");
  status.chunks_moved = fields->Number("chunks_moved");
  status.descriptors_in = fields->Number("descriptors_in");
  status.descriptors_out = fields->Number("descriptors_out");
  status.workers = static_cast<uint32_t>(fields->Number("workers"));
  status.admit_us = fields->Number("timings/admit_us");
  status.fence_us = fields->Number("timings/fence_us");
  status.queue_us = fields->Number("timings/queue_us");
  status.move_us = fields->Number("timings/move_us");
  status.copy_us = fields->Number("timings/copy_us");
  status.total_us = fields->Number("timings/total_us");
  answer.error = http::ProblemIn(*fields, "error/");
  answer.body = std::move(body);
  return answer;
}

}  // namespace gantry::client
