// One workload's link to its sidecar: requests in the name of its lease, and the hand-off of
// descriptors. Every function fails with kCancelled after Close. Thread-safe once Attach has
// succeeded.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "client/session/client_json.h"
#include "client/session/handoff_lease.h"
#include "client/session/silence.h"
#include "lib/base/clock.h"
#include "lib/base/result.h"
#include "lib/http/unix_http.h"

namespace gantry::client {

// How long the end of a buffer waits for transfers that use it.
inline constexpr uint64_t kDropDrainMs = 1000;

struct SessionOptions {
  std::string path;  // run directory or API socket of the sidecar
  std::string workload;
  std::string engine_id;
  std::string handoff_socket;  // empty: beside the API socket
  milliseconds timeout{10'000};
};

class SidecarLink {
 public:
  SidecarLink(SessionOptions options, std::string api_socket);

  // Registers the workload and attaches its lease. Once, before anything else.
  Status Attach();
  // Ends the lease. Idempotent. `longest`: to wait for the sidecar; with 0 it is not asked, and
  // sees the hand-off socket close.
  Status Close(milliseconds longest);
  // Asks over the lease whether the sidecar is there.
  Status Ping();

  // The body of the answer, or the problem in it. kSidecarLost: the sidecar or the lease is gone.
  // `raw`: the body, also when it is a problem.
  Result<std::string> Exchange(http::HttpRequest request, std::string* raw = nullptr);
  Result<std::string> Post(std::string_view target, std::string_view body, uint64_t wait_ms);
  // Checks what callers say of method and target.
  Result<std::string> Request(std::string_view method, std::string_view target,
                              std::string_view body, uint64_t wait_ms);

  // Gives descriptors to the sidecar, at most kFdsPerMessageMax; the answer is their tokens.
  Result<std::vector<std::string>> HandOver(std::span<const int> fds);
  Status ReleaseFd(const std::string& token);
  // As many as there are; failures are not told, as a lost lease takes the descriptors with it.
  void ReleaseFds(const std::vector<std::string>& tokens);

  Silence& silence() { return silence_; }
  // Tells the sidecar what ended while it stood still.
  Status ResendUnheard();

  // Not closed, and the sidecar holds the lease.
  bool is_alive() const { return !closed_ && lease_->alive(); }
  bool is_closed() const { return closed_; }
  // The answer of every call after Close.
  static Error Closed() { return {ErrorCode::kCancelled, "the client is closed"}; }

  // Waits are for as long as anybody can mean and short enough for every clock.
  static milliseconds Bounded(uint64_t wait_ms);
  milliseconds timeout() const { return options_.timeout; }
  const std::string& workload() const { return options_.workload; }
  const std::string& generation() const { return lease_answer_.generation; }
  bool wants_dma_bufs() const { return lease_answer_.wants_dma_bufs; }
  bool takes_unsealed_memory() const { return lease_answer_.takes_unsealed_memory; }

 private:
  const SessionOptions options_;
  http::UnixHttp http_;
  Silence silence_;
  LeaseAnswer lease_answer_;             // constant after Attach
  std::unique_ptr<HandoffLease> lease_;  // constant after Attach
  std::atomic<bool> closed_{false};
};

}  // namespace gantry::client
