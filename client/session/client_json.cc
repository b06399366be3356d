#include "client/session/client_json.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <utility>

#include "client/session/answer_fields.h"
#include "client/session/json_text_of.h"
#include "lib/base/base64.h"
#include "lib/base/json_text.h"
#include "lib/wire/transfer_request.h"

namespace gantry::client {
namespace {

// In the order of GANTRY_QUEUED and following.
constexpr std::array<std::string_view, 7> kStates = {"queued", "running",   "stopping", "succeeded",
                                                     "failed", "cancelled", "expired"};

void AppendNumber(std::string* out, uint64_t value) {
  std::array<char, 20> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  out->append(digits.data(), end);
}

void AppendMember(std::string* out, std::string_view key, std::string_view text) {
  out->append(out->back() == '{' ? "\"" : ",\"").append(key).append("\":").append(JsonQuote(text));
}

void AppendMember(std::string* out, std::string_view key, uint64_t value) {
  out->append(out->back() == '{' ? "\"" : ",\"").append(key).append("\":");
  AppendNumber(out, value);
}

template <typename Items, typename Append>
void AppendArray(std::string* out, std::string_view key, const Items& items, Append append) {
  out->append(out->back() == '{' ? "\"" : ",\"").append(key).append("\":[");
  bool first = true;
  for (const auto& item : items) {
    if (!first) out->push_back(',');
    first = false;
    append(item);
  }
  out->push_back(']');
}

void AppendStrings(std::string* out, std::string_view key, std::span<const std::string> items) {
  AppendArray(out, key, items, [out](const std::string& item) { *out += JsonQuote(item); });
}

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

void AppendArena(std::string* out, const Arena& arena) {
  *out += "{";
  AppendMember(out, "kind", "host");
  AppendMember(out, "fd_token", arena.fd_token);
  AppendMember(out, "size", arena.bytes());
  *out += "}";
}

void AppendGpuAllocation(std::string* out, const GpuAllocation& allocation) {
  *out += "{";
  AppendMember(out, "kind", "gpu");
  AppendMember(out, "size", allocation.range.size);
  AppendMember(out, "device_uuid", allocation.device_uuid);
  AppendMember(out, "buffer_id", allocation.buffer_id);
  // In the namespace of this process: a handle is not opened by a process of the same number.
  AppendMember(out, "pid", static_cast<uint64_t>(::getpid()));
  if (allocation.fd_token.empty()) {
    const auto& handle = allocation.ipc_handle.bytes;
    AppendMember(out, "ipc_handle",
                 Base64Of({reinterpret_cast<const char*>(handle.data()), handle.size()}));
  } else {
    AppendMember(out, "fd_token", allocation.fd_token);
    if (allocation.fd_offset) AppendMember(out, "fd_offset", *allocation.fd_offset);
  }
  if (const wire::DmaBufSpec& dma_buf = allocation.dma_buf; !dma_buf.fd_token.empty()) {
    *out += ",\"dma_buf\":{";
    AppendMember(out, "fd_token", dma_buf.fd_token);
    AppendMember(out, "offset", dma_buf.offset);
    AppendMember(out, "size", dma_buf.size);
    *out += "}";
  } else if (!allocation.no_dma_buf_because.empty()) {
    AppendMember(out, "no_dma_buf_because", allocation.no_dma_buf_because);
  }
  *out += "}";
}

constexpr std::array<std::string_view, 5> kProblemKeys = {"code", "detail", "title", "hint",
                                                          "field"};

// The problem details below `prefix`; nullopt when there are none.
std::optional<Error> ProblemIn(const AnswerFields& fields, const std::string& prefix) {
  const std::string name = fields.Text(prefix + "code");
  if (name.empty()) return std::nullopt;
  Error error(ErrorCodeByName(name), fields.Text(prefix + "detail"), fields.Text(prefix + "hint"),
              fields.Text(prefix + "field"));
  if (error.message.empty()) error.message = fields.Text(prefix + "title");
  const bool unknown = InfoOf(error.code).name != name;
  return unknown ? std::move(error).WithContext("code '" + name + "'") : error;
}

}  // namespace

Result<std::string> TransferAnswer::Json() const {
  if (auto json = JsonOf(body)) return *std::move(json);
  return NotUnderstood("text");
}

std::string UrlEscape(std::string_view text) {
  static constexpr char kHex[] = "0123456789ABCDEF";
  std::string escaped;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '.' || c == '_';
    if (plain) {
      escaped += c;
      continue;
    }
    const auto byte = static_cast<uint8_t>(c);
    escaped += '%';
    escaped += kHex[byte >> 4];
    escaped += kHex[byte & 15];
  }
  return escaped;
}

Result<std::string> BodyOrProblem(HttpReply reply) {
  if (reply.status >= 200 && reply.status < 300) return std::move(reply.body);
  const auto fields = AnswerFields::Read(reply.body, kProblemKeys);
  auto problem = fields ? ProblemIn(*fields, "") : std::nullopt;
  if (problem) return Fail(*std::move(problem));
  return Fail(ErrorCode::kInternal,
              "the sidecar answered with status " + std::to_string(reply.status));
}

std::string LeaseBody(std::string_view engine_id) {
  std::string body = "{";
  if (!engine_id.empty()) AppendMember(&body, "engine_id", engine_id);
  return body + "}";
}

std::string RegistrationBody(std::string_view workload, std::span<const BufferRequest> buffers) {
  std::map<const void*, size_t> indices;
  std::vector<const ResolvedPiece*> allocations;  // a piece of each
  for (const BufferRequest& buffer : buffers) {
    for (const ResolvedPiece& piece : buffer.pieces) {
      if (indices.emplace(AllocationOf(piece), allocations.size()).second) {
        allocations.push_back(&piece);
      }
    }
  }
  std::string body = "{";
  AppendMember(&body, "workload", workload);
  AppendArray(&body, "allocations", allocations, [&](const ResolvedPiece* piece) {
    if (const auto* extent = std::get_if<Extent>(piece)) {
      AppendArena(&body, *extent->arena);
    } else {
      AppendGpuAllocation(&body, *std::get<GpuPiece>(*piece).allocation);
    }
  });
  AppendArray(&body, "buffers", buffers, [&](const BufferRequest& buffer) {
    body += "{";
    AppendMember(&body, "name", buffer.name);
    AppendArray(&body, "pieces", buffer.pieces, [&](const ResolvedPiece& piece) {
      body += "{";
      AppendMember(&body, "allocation", indices.at(AllocationOf(piece)));
      std::visit(
          [&](const auto& part) {
            AppendMember(&body, "offset", part.offset);
            AppendMember(&body, "length", part.bytes);
          },
          piece);
      body += "}";
    });
    std::vector<std::string> access;
    if (buffer.access.remote_read) access.emplace_back("remote_read");
    if (buffer.access.remote_write) access.emplace_back("remote_write");
    AppendStrings(&body, "access", access);
    if (buffer.layout) {
      body += ",\"layout\":{";
      AppendMember(&body, "block_bytes", buffer.layout->block_bytes);
      AppendMember(&body, "block_stride", buffer.layout->block_stride);
      AppendMember(&body, "blocks", buffer.layout->blocks);
      body += "}";
    }
    if (!buffer.verify.empty()) {
      AppendArray(&body, "verify", buffer.verify, [&](const wire::NoncePlace& place) {
        body += "{";
        AppendMember(&body, "offset", place.offset);
        AppendMember(&body, "nonce", Base64Of(place.nonce));
        body += "}";
      });
    }
    body += "}";
  });
  return body + "}";
}

std::string SuspensionBody(std::string_view workload, const std::vector<std::string>* names,
                           std::optional<uint64_t> drain_ms, std::string_view memory) {
  std::string body = "{";
  AppendMember(&body, "workload", workload);
  if (names != nullptr) AppendStrings(&body, "buffers", *names);
  if (drain_ms) AppendMember(&body, "drain_ms", *drain_ms);
  if (!memory.empty()) AppendMember(&body, "memory", memory);
  return body + "}";
}

Result<LeaseAnswer> ReadLease(std::string_view body) {
  static constexpr std::array<std::string_view, 4> kKeys = {"lease_token", "generation",
                                                            "handoff_socket", "wants_dma_bufs"};
  const auto fields = AnswerFields::Read(body, kKeys);
  if (!fields) return NotUnderstood("lease");
  LeaseAnswer answer = {fields->Text("lease_token"), fields->Text("generation"),
                        fields->Text("handoff_socket"), fields->Flag("wants_dma_bufs")};
  if (answer.lease_token.empty() || answer.generation.empty()) return NotUnderstood("lease");
  return answer;
}

Result<std::vector<BufferAnswer>> ReadBuffers(std::string_view body) {
  static constexpr std::array<std::string_view, 3> kKeys = {"name", "id", "generation"};
  const auto fields = AnswerFields::Read(body, kKeys);
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
  const auto fields = AnswerFields::Read(body, kKeys);
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
  const auto fields = AnswerFields::Read(body, kKeys);
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
  answer.error = ProblemIn(*fields, "error/");
  answer.body = std::move(body);
  return answer;
}

}  // namespace gantry::client
