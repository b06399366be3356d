// Transfers from request to outcome. Submit checks everything and plans on the caller's thread. The
// engine's loop owns the transfer table, drives the transports and ends each transfer exactly once.
// It does so before the transfer's deadline plus quiesce_max. Thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/clock.h"
#include "lib/base/result.h"
#include "lib/wire/transfer_request.h"
#include "sidecar/messaging/event_log.h"
#include "sidecar/messaging/hold_client.h"
#include "sidecar/messaging/notification_center.h"
#include "sidecar/messaging/transfer_status.h"
#include "sidecar/metrics/metrics.h"
#include "sidecar/registry/buffer_registry.h"
#include "sidecar/remote/peer_gateway.h"
#include "sidecar/transfer/engine_options.h"
#include "sidecar/transfer/failure_log.h"
#include "sidecar/transport/copy_hints.h"
#include "sidecar/transport/transport.h"
#include "sidecar/worker/channel/driver_sleep.h"

namespace gantry::engine {

class DelegatedTransfers;
class PeerBuffers;
class PeerExecutor;
class TransferAdmission;
class RetryRequestStore;
class StaleRetry;
class TransferLoop;
class ViewTable;
struct Admitted;

class TransferEngine {
 public:
  // `sleep` is of the workers that the transports use. All references outlive the engine.
  TransferEngine(EngineOptions options, worker::DriverSleep& sleep, transport::CopyHints& hints,
                 std::vector<std::unique_ptr<transport::Transport>> transports,
                 registry::BufferRegistry& registry, EventLog& events, metrics::Metrics& metrics);
  ~TransferEngine();  // calls Close(), then blocks until no transfer moves a byte

  // Whether the engine's thread was started: see TransferLoop::started.
  Status started() const;

  // Rejects new transfers and stops the running ones; returns at once.
  void Close();
  // Retries no transfer from now on. Returns when no retry waits for a peer any more. Call before
  // the peer gateway is destroyed.
  void StopRetries();

  // Call once, before the first transfer; null: no peers, only buffers of this sidecar.
  void SetPeerGateway(PeerGateway* gateway);
  // Call once, before the first transfer; null: no peer executes transfers for this sidecar. The
  // executor outlives every transfer.
  void SetPeerExecutor(PeerExecutor* executor);
  // Call once, before the first transfer. Without it, notifications are not delivered and holds
  // cannot be read.
  void SetMessaging(NotificationCenter& notifications, HoldClient& holds);

  // Hint: a transfer request is about to be parsed, so copy workers may wake up. Returns at once.
  void Foresee() const { hints_.Foresee(); }
  // Admission: checks everything before anything is issued. REQUIRES that the caller is authorised
  // for request.workload. A known id returns the existing transfer if the content is equal, else
  // kConflict. Waits until the transfer is terminal or `wait_until` has passed. `last_check`, if
  // any, runs when all buffers are resolved and before the first byte moves.
  Result<TransferStatus> Submit(wire::TransferRequest request, TimePoint wait_until,
                                const std::function<Status()>& last_check = nullptr);
  // Waits like Submit.
  Result<TransferStatus> Get(std::string_view workload, std::string_view id, TimePoint wait_until);
  // Stops the transfer and waits until it is terminal, which means quiet, or until `wait_until`.
  // Does not change a terminal transfer.
  Result<TransferStatus> Cancel(std::string_view workload, std::string_view id,
                                TimePoint wait_until);
  // Newest first; empty workload: all. `active_only` omits terminal ones.
  std::vector<TransferStatus> List(std::string_view workload, bool active_only, size_t limit);

  // Stops the transfers of a workload that has ended, with `why`. Its finished ids can be reused by
  // its next process. Generation 0: any. Returns at once.
  void StopTransfersOf(std::string_view workload, uint64_t workload_generation, Error why);
  // Stops the transfers that use this remote buffer; returns at once.
  void StopTransfersUsing(std::shared_ptr<const RemoteBuffer> buffer, Error why);

  // Views end with their workload, by StopTransfersOf.
  ViewTable& views() { return *views_; }

  // Whether each path works on this machine, and why not.
  std::vector<wire::PathReport> Paths() const;
  EngineTotals Totals();
  milliseconds deadline_max() const { return options_.deadline_max; }

 private:
  Result<Admitted> Admit(const wire::TransferRequest& request);
  Result<TransferStatus> Refuse(const wire::TransferRequest& request, Error error,
                                TimePoint wait_until);
  void NoteRejection(std::string_view workload, wire::Operation operation, const Error& error);

  const EngineOptions options_;
  transport::CopyHints& hints_;
  const std::vector<std::unique_ptr<transport::Transport>> transports_;
  metrics::Metrics& metrics_;
  FailureLog refusals_{"a transfer was refused"};
  const std::unique_ptr<PeerBuffers> peers_;
  const std::unique_ptr<ViewTable> views_;
  const std::unique_ptr<DelegatedTransfers> delegated_;
  const std::unique_ptr<TransferAdmission> admission_;
  const std::unique_ptr<StaleRetry> retry_;
  const std::unique_ptr<TransferLoop> loop_;
  const std::shared_ptr<RetryRequestStore> requests_;
};

}  // namespace gantry::engine
