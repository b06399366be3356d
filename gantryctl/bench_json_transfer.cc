#include "gantryctl/bench_json_transfer.h"

#include <array>
#include <charconv>
#include <nlohmann/json.hpp>

#include "gantryctl/json_field.h"
#include "lib/wire/body_writer.h"

namespace gantry::gantryctl {
namespace {

constexpr size_t kDigitsMax = 21;  // of a number, and the comma
constexpr size_t kKeysMax = 64;    // with what is around the lists

// A tree of hundreds of thousands of numbers would take longer than the transfer.
void AppendBlocks(std::string& body, const char* key, std::span<const uint64_t> blocks) {
  body += std::string(",\"") + key + "\":[";
  std::array<char, kDigitsMax> number;
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (i > 0) body += ',';
    const auto end = std::to_chars(number.data(), number.data() + number.size(), blocks[i]).ptr;
    body.append(number.data(), end);
  }
  body += ']';
}

}  // namespace

std::string JsonTransferBody(const JsonTransfer& transfer, std::span<const uint64_t> local_blocks,
                             std::span<const uint64_t> remote_blocks) {
  wire::BodyWriter rest(wire::BodyFormat::kJson);
  rest.BeginObject();
  rest.Field("workload", transfer.workload).Field("op", transfer.read ? "read" : "write");
  rest.Field("executor", transfer.peer_executes ? "peer" : "self");
  rest.Field("deadline_ms", transfer.deadline_ms);
  if (transfer.view.empty()) {
    rest.Key("local").BeginList().Text(transfer.local).EndList();
    rest.Key("remote").BeginList().Text(transfer.remote).EndList();
  } else {
    rest.Field("view", transfer.view);
  }
  std::string body = rest.EndObject().Take();
  body.reserve(body.size() + kKeysMax + kDigitsMax * (local_blocks.size() + remote_blocks.size()));
  body.pop_back();  // its brace
  AppendBlocks(body, "local_blocks", local_blocks);
  AppendBlocks(body, "remote_blocks", remote_blocks);
  body += '}';
  return body;
}

Result<JsonTransferState> ReadJsonTransfer(const std::string& answer) {
  const auto view = nlohmann::json::parse(answer, nullptr, false);
  const std::string state = TextOf(view, "state");
  JsonTransferState read;
  read.id = TextOf(view, "id");
  if (state == "queued" || state == "running" || state == "stopping") return read;
  if (state != "succeeded") {
    return Fail(ErrorCode::kInternal, "a transfer did not succeed: " + answer);
  }
  const nlohmann::json& timings = MemberOf(view, "timings");
  read.is_over = true;
  read.outcome.times = {0,
                        NumberOf(timings, "admit_us"),
                        NumberOf(timings, "queue_us"),
                        NumberOf(timings, "move_us"),
                        NumberOf(timings, "copy_us"),
                        NumberOf(timings, "total_us")};
  read.outcome.bytes = CountOf(view, "bytes_moved");
  read.outcome.chunks = CountOf(view, "chunks");
  read.outcome.descriptors_in = CountOf(view, "descriptors_in");
  read.outcome.descriptors_out = CountOf(view, "descriptors_out");
  read.outcome.workers = static_cast<uint32_t>(CountOf(view, "workers"));
  read.outcome.path = TextOf(view, "path");
  read.outcome.by_peer = TextOf(view, "executor") == "peer";
  return read;
}

}  // namespace gantry::gantryctl
