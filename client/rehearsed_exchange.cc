#include "client/rehearsed_exchange.h"

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "client/transfer_body.h"

namespace gantry::client {
namespace {

// With as many members as the answer to a small transfer between two GPUs has, or nearly so.
nlohmann::json Answered() {
  return {{"id", "t-0123456789abcdef-0"},
          {"workload", "rehearsed"},
          {"op", "read"},
          {"state", "succeeded"},
          {"priority", 0},
          {"path", "ipc"},
          {"executor", "self"},
          {"bytes", 4096},
          {"bytes_moved", 4096},
          {"descriptors_in", 1},
          {"descriptors_out", 1},
          {"chunks", 1},
          {"chunks_moved", 1},
          {"workers", 1},
          {"paths", {{{"path", "ipc"}, {"available", true}, {"reason", ""}}}},
          {"timings",
           {{"admit_us", 4},
            {"fence_us", 0},
            {"queue_us", 2},
            {"move_us", 10},
            {"copy_us", 9},
            {"total_us", 20}}}};
}

std::string MakeAnswer() {
  const std::vector<uint8_t> body = nlohmann::json::to_cbor(Answered());
  std::string answer = "HTTP/1.1 200 OK\r\nContent-Type: application/cbor\r\nContent-Length: ";
  answer += std::to_string(body.size()) + "\r\nKeep-Alive: timeout=60\r\n\r\n";
  return answer.append(body.begin(), body.end());
}

}  // namespace

std::string RehearsedBody(std::string_view workload) {
  const std::array<uint64_t, 1> local_blocks = {1}, remote_blocks = {2};
  const char* const remote = "peer/workload/layer.0";
  const std::array<std::string, 1> local = {"layer.0@0123456789abcdef"};
  gantry_transfer_spec spec = {};
  spec.operation = GANTRY_READ;
  spec.local_count = spec.remote_count = spec.block_count = 1;
  spec.remote = &remote;
  spec.local_blocks = local_blocks.data();
  spec.remote_blocks = remote_blocks.data();
  return TransferBody(workload, "t-0123456789abcdef-0", spec, {local, "", ""});
}

const std::string& RehearsedAnswer() {
  static const std::string answer = MakeAnswer();
  return answer;
}

}  // namespace gantry::client
