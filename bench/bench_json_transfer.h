// A transfer asked for with a JSON body of our own, as a connector without the client library asks:
// what it sends and what it reads. Stateless; thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "bench/bench_workload.h"
#include "lib/base/result.h"

namespace gantry::bench {

struct JsonTransfer {
  std::string workload;
  std::string view;   // its id; empty: of `local` and `remote`
  std::string local;  // one buffer of each side, as requests name them
  std::string remote;
  bool read = true;
  bool peer_executes = false;
  uint64_t deadline_ms = 0;
};
// The body of POST /v1/transfers.
std::string JsonTransferBody(const JsonTransfer& transfer, std::span<const uint64_t> local_blocks,
                             std::span<const uint64_t> remote_blocks);

struct JsonTransferState {
  std::string id;
  bool is_over = false;
  TransferOutcome outcome;  // once it is over; without the caller's time
};
// What the sidecar answered; a transfer that ended in another way than to succeed is an error.
Result<JsonTransferState> ReadJsonTransfer(const std::string& answer);

}  // namespace gantry::bench
