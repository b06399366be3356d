#include "bench/bench_json_transfer.h"

#include <array>
#include <string_view>

#include "lib/codec/body_fields.h"
#include "lib/codec/body_writer.h"

namespace gantry::bench {
namespace {

constexpr std::array<std::string_view, 14> kKeys = {
    "id",          "state",    "path",           "executor",
    "bytes_moved", "chunks",   "descriptors_in", "descriptors_out",
    "workers",     "admit_us", "queue_us",       "move_us",
    "copy_us",     "total_us"};

}  // namespace

std::string JsonTransferBody(const JsonTransfer& transfer, std::span<const uint64_t> local_blocks,
                             std::span<const uint64_t> remote_blocks) {
  wire::BodyWriter body(wire::BodyFormat::kJson);
  body.BeginObject();
  body.Field("workload", transfer.workload).Field("op", transfer.read ? "read" : "write");
  body.Field("executor", transfer.peer_executes ? "peer" : "self");
  body.Field("deadline_ms", transfer.deadline_ms);
  if (transfer.view.empty()) {
    body.Field("local", std::span(&transfer.local, 1))
        .Field("remote", std::span(&transfer.remote, 1));
  } else {
    body.Field("view", transfer.view);
  }
  body.Field("local_blocks", local_blocks).Field("remote_blocks", remote_blocks);
  return body.EndObject().Take();
}

Result<JsonTransferState> ReadJsonTransfer(const std::string& answer) {
  const auto fields = wire::BodyFields::Read(answer, kKeys);
  const std::string state = fields ? fields->Text("state") : "";
  JsonTransferState read;
  read.is_over = state == "succeeded";
  if (!read.is_over && state != "queued" && state != "running" && state != "stopping") {
    return Fail(ErrorCode::kInternal, "a transfer did not succeed: " + answer);
  }
  const auto time = [&fields](const std::string& name) {
    return static_cast<double>(fields->Number("timings/" + name));
  };
  read.id = fields->Text("id");
  read.outcome.path = fields->Text("path");
  read.outcome.by_peer = fields->Text("executor") == "peer";
  read.outcome.bytes = fields->Number("bytes_moved");
  read.outcome.chunks = fields->Number("chunks");
  read.outcome.descriptors_in = fields->Number("descriptors_in");
  read.outcome.descriptors_out = fields->Number("descriptors_out");
  read.outcome.workers = static_cast<uint32_t>(fields->Number("workers"));
  read.outcome.times.admit_us = time("admit_us");
  read.outcome.times.queue_us = time("queue_us");
  read.outcome.times.move_us = time("move_us");
  read.outcome.times.copy_us = time("copy_us");
  read.outcome.times.total_us = time("total_us");
  return read;
}

}  // namespace gantry::bench
