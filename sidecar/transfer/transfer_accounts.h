// Tells metrics, events and the log of transfers. Owned by the engine's driver.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "sidecar/messaging/event_log.h"
#include "sidecar/metrics/metrics.h"
#include "sidecar/transfer/failure_log.h"
#include "sidecar/transfer/transfer.h"
#include "sidecar/transport/transport.h"

namespace gantry::engine {

class TransferAccounts {
 public:
  // All three outlive this.
  TransferAccounts(const std::vector<std::unique_ptr<transport::Transport>>& transports,
                   EventLog& events, metrics::Metrics& metrics)
      : transports_(transports), events_(events), metrics_(metrics) {}

  // Counts the path that was chosen, and the fallback that it may be.
  void PathChosen(const Admitted& admitted) const;
  // The transfer's bytes begin to move (1) or end (-1).
  void Moving(const Transfer& transfer, int change, TimePoint now);
  // One attempt ended with this status. `counted`: the transport counted this error itself.
  void AttemptFailed(const TransferStatus& status, std::optional<ErrorCode> counted) const;
  // It is tried again, which `why` led to.
  void Retried(ErrorCode why) const { metrics_.TransferRetried(why); }
  // It failed, or expired, for good. A cancelled one was meant to end.
  void Failed(const TransferStatus& status);
  // It is terminal.
  void Ended(const Transfer& transfer, TimePoint ended) const;

 private:
  struct BusyTime {
    int running = 0;
    TimePoint since;
  };

  const std::vector<std::unique_ptr<transport::Transport>>& transports_;
  EventLog& events_;
  metrics::Metrics& metrics_;
  FailureLog failures_{"a transfer did not succeed"};
  std::array<std::array<BusyTime, wire::kPathCount>, 2> busy_;  // reads, then writes
};

}  // namespace gantry::engine
