#include "client/client_json.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "lib/base/json_text.h"

namespace gantry::client {
namespace {

using Json = nlohmann::json;

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

std::string TextOf(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

uint64_t NumberOf(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number_unsigned() ? found->get<uint64_t>() : 0;
}

Error ProblemOf(const Json& problem) {
  const std::string name = TextOf(problem, "code");
  Error error(ErrorCodeByName(name), TextOf(problem, "detail"), TextOf(problem, "hint"),
              TextOf(problem, "field"));
  if (error.message.empty()) error.message = TextOf(problem, "title");
  const bool unknown = InfoOf(error.code).name != name;
  return unknown ? std::move(error).WithContext("code '" + name + "'") : error;
}

void ReadTimings(const Json& view, gantry_transfer_status* status) {
  const auto timings = view.find("timings");
  if (timings == view.end() || !timings->is_object()) return;
  status->admit_us = NumberOf(*timings, "admit_us");
  status->queue_us = NumberOf(*timings, "queue_us");
  status->move_us = NumberOf(*timings, "move_us");
  status->copy_us = NumberOf(*timings, "copy_us");
  status->total_us = NumberOf(*timings, "total_us");
}

}  // namespace

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
  const Json problem = Json::parse(reply.body, nullptr, false);
  if (!problem.is_object() || TextOf(problem, "code").empty()) {
    return Fail(ErrorCode::kInternal,
                "the sidecar answered with status " + std::to_string(reply.status));
  }
  return Fail(ProblemOf(problem));
}

std::string LeaseBody(std::string_view engine_id) {
  std::string body = "{";
  if (!engine_id.empty()) AppendMember(&body, "engine_id", engine_id);
  return body + "}";
}

std::string RegistrationBody(std::string_view workload, std::span<const BufferRequest> buffers) {
  std::map<const Arena*, size_t> indices;
  std::vector<const Arena*> arenas;
  for (const BufferRequest& buffer : buffers) {
    for (const Extent& extent : buffer.extents) {
      if (!indices.emplace(extent.arena.get(), arenas.size()).second) continue;
      arenas.push_back(extent.arena.get());
    }
  }
  std::string body = "{";
  AppendMember(&body, "workload", workload);
  AppendArray(&body, "allocations", arenas, [&](const Arena* arena) {
    body += "{";
    AppendMember(&body, "kind", "host");
    AppendMember(&body, "fd_token", arena->fd_token);
    AppendMember(&body, "size", arena->bytes());
    body += "}";
  });
  AppendArray(&body, "buffers", buffers, [&](const BufferRequest& buffer) {
    body += "{";
    AppendMember(&body, "name", buffer.name);
    AppendArray(&body, "pieces", buffer.extents, [&](const Extent& extent) {
      body += "{";
      AppendMember(&body, "allocation", indices.at(extent.arena.get()));
      AppendMember(&body, "offset", extent.offset);
      AppendMember(&body, "length", extent.bytes);
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
    body += "}";
  });
  return body + "}";
}

std::string TransferBody(std::string_view workload, std::string_view id,
                         const gantry_transfer_spec& spec, std::span<const std::string> local) {
  std::string body = "{";
  body.reserve(1024 + 16 * (spec.block_count + 4 * spec.range_count));
  AppendMember(&body, "id", id);
  AppendMember(&body, "workload", workload);
  AppendMember(&body, "op", spec.operation == GANTRY_WRITE ? "write" : "read");
  AppendStrings(&body, "local", local);
  AppendArray(&body, "remote", std::span(spec.remote, spec.remote_count),
              [&](const char* reference) { body += JsonQuote(reference); });
  if (spec.range_count == 0) {
    const auto append = [&](uint64_t block) { AppendNumber(&body, block); };
    AppendArray(&body, "local_blocks", std::span(spec.local_blocks, spec.block_count), append);
    AppendArray(&body, "remote_blocks", std::span(spec.remote_blocks, spec.block_count), append);
  } else {
    AppendArray(
        &body, "ranges", std::span(spec.ranges, spec.range_count), [&](const gantry_range& range) {
          body += '[';
          for (const uint64_t number : {uint64_t{range.local_index}, range.local_offset,
                                        uint64_t{range.remote_index}, range.remote_offset}) {
            AppendNumber(&body, number);
            body += ',';
          }
          AppendNumber(&body, range.bytes);
          body += ']';
        });
  }
  if (spec.deadline_ms != 0) AppendMember(&body, "deadline_ms", spec.deadline_ms);
  if (spec.priority != 0) body += ",\"priority\":" + std::to_string(spec.priority);
  if (spec.require_path != nullptr) {
    std::vector<std::string> paths;
    std::string_view rest = spec.require_path;
    while (!rest.empty()) {
      const size_t comma = std::min(rest.find(','), rest.size());
      paths.emplace_back(rest.substr(0, comma));
      rest.remove_prefix(std::min(comma + 1, rest.size()));
    }
    AppendStrings(&body, "require_path", paths);
  }
  if (spec.user_data != nullptr) AppendMember(&body, "user_data", spec.user_data);
  return body + "}";
}

std::string SuspensionBody(std::string_view workload, const std::vector<std::string>* names,
                           std::optional<uint64_t> drain_ms) {
  std::string body = "{";
  AppendMember(&body, "workload", workload);
  if (names != nullptr) AppendStrings(&body, "buffers", *names);
  if (drain_ms) AppendMember(&body, "drain_ms", *drain_ms);
  return body + "}";
}

Result<LeaseAnswer> ReadLease(std::string_view body) {
  const Json view = Json::parse(body, nullptr, false);
  if (!view.is_object()) return NotUnderstood("lease");
  LeaseAnswer answer = {TextOf(view, "lease_token"), TextOf(view, "generation"),
                        TextOf(view, "handoff_socket")};
  if (answer.lease_token.empty() || answer.generation.empty()) return NotUnderstood("lease");
  return answer;
}

Result<std::vector<BufferAnswer>> ReadBuffers(std::string_view body) {
  const Json view = Json::parse(body, nullptr, false);
  if (!view.is_object()) return NotUnderstood("list of buffers");
  const auto list = view.find("buffers");
  if (list == view.end() || !list->is_array()) return NotUnderstood("list of buffers");
  std::vector<BufferAnswer> buffers;
  for (const Json& item : *list) {
    if (!item.is_object()) return NotUnderstood("buffer");
    buffers.push_back({TextOf(item, "name"), TextOf(item, "id"), TextOf(item, "generation")});
    if (buffers.back().id.empty()) return NotUnderstood("buffer");
  }
  return buffers;
}

Result<TransferAnswer> ReadTransfer(std::string body) {
  const Json view = Json::parse(body, nullptr, false);
  if (!view.is_object()) return NotUnderstood("transfer");
  const auto state = std::find(kStates.begin(), kStates.end(), TextOf(view, "state"));
  if (state == kStates.end()) return NotUnderstood("state of a transfer");
  TransferAnswer answer;
  gantry_transfer_status& status = answer.status;
  status.state = static_cast<int>(state - kStates.begin());
  status.workers = static_cast<uint32_t>(NumberOf(view, "workers"));
  status.bytes = NumberOf(view, "bytes");
  status.bytes_moved = NumberOf(view, "bytes_moved");
  status.chunks = NumberOf(view, "chunks");
  status.chunks_moved = NumberOf(view, "chunks_moved");
  status.descriptors_in = NumberOf(view, "descriptors_in");
  status.descriptors_out = NumberOf(view, "descriptors_out");
  ReadTimings(view, &status);
  TextOf(view, "path").copy(status.path, sizeof(status.path) - 1);
  if (const auto error = view.find("error"); error != view.end() && error->is_object()) {
    answer.error = ProblemOf(*error);
  }
  answer.json = std::move(body);
  return answer;
}

}  // namespace gantry::client
