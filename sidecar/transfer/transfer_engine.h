// Transfers from request to outcome. Submit checks everything and plans on the caller's thread;
// its loop owns the table of transfers, feeds the transports and ends each transfer
// exactly once, before its deadline plus quiesce_max. Thread-safe.
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
#include "sidecar/messaging/hold_desk.h"
#include "sidecar/messaging/notification_center.h"
#include "sidecar/messaging/transfer_status.h"
#include "sidecar/metrics/metrics.h"
#include "sidecar/registry/buffer_registry.h"
#include "sidecar/remote/peer_gateway.h"
#include "sidecar/transfer/engine_options.h"
#include "sidecar/transfer/trouble_log.h"
#include "sidecar/transport/transport.h"
#include "sidecar/worker/channel/copy_pool.h"

namespace gantry::engine {

class DelegatedTransfers;
class PeerBuffers;
class PeerExecutor;
class TransferAdmission;
class RequestShelf;
class StaleRetry;
class TransferLoop;
class ViewTable;
struct Admitted;

class TransferEngine {
 public:
  // `transports` in the order of preference. All references outlive the engine.
  TransferEngine(EngineOptions options, worker::CopyPool& pool,
                 std::vector<std::unique_ptr<transport::Transport>> transports,
                 registry::BufferRegistry& registry, EventLog& events, metrics::Metrics& metrics);
  ~TransferEngine();  // Close(), then waits until all transfers are quiet

  Status started() const;  // as TransferLoop has it

  // Takes no more transfers and stops those that run; returns at once.
  void Close();
  // No transfer is tried again from now on; returns when none asks a peer any more. Before the
  // gateway goes.
  void StopRetries();

  // Set once, before the first transfer; null: no peers, only buffers of this sidecar.
  void SetPeerGateway(PeerGateway* gateway);
  // Likewise; null: no peer executes transfers for this sidecar. It outlives every transfer.
  void SetPeerExecutor(PeerExecutor* executor);
  // Likewise; without, no notification is delivered and no hold can be read.
  void SetMessaging(NotificationCenter& notifications, HoldDesk& holds);

  // A request for a transfer has come: who copies wakes up while it is read. Returns at once.
  void Foresee() const;
  // Admission: checks everything before anything is issued. The caller was authorised for
  // request.workload. An id that is known answers the existing transfer (same content) or
  // kConflict. Waits until the transfer is terminal or `wait_until` has passed.
  // `last_check`, if any, is asked when all buffers are resolved, before the first byte moves.
  Result<TransferStatus> Submit(wire::TransferRequest request, TimePoint wait_until,
                                const std::function<Status()>& last_check = nullptr);
  // Waits likewise.
  Result<TransferStatus> Get(std::string_view workload, std::string_view id, TimePoint wait_until);
  // Asks the transfer to stop and waits until it is terminal (quiet) or `wait_until`; one that is
  // terminal already stays as it is.
  Result<TransferStatus> Cancel(std::string_view workload, std::string_view id,
                                TimePoint wait_until);
  // Newest first; empty workload: all. `active_only` leaves out terminal ones.
  std::vector<TransferStatus> List(std::string_view workload, bool active_only, size_t limit);

  // Stops the transfers of a workload that ended, for the given reason, and forgets the ids of
  // those that are finished: its next process starts anew. Generation 0: any. Returns at once.
  void StopTransfersOf(std::string_view workload, uint64_t workload_generation, Error why);
  // Stops the transfers that use this buffer; returns at once.
  void StopTransfersUsing(std::shared_ptr<const RemoteBuffer> buffer, Error why);

  // Views end with their workload, as StopTransfersOf says.
  ViewTable& views() { return *views_; }

  // What each path is good for on this machine.
  std::vector<wire::PathReport> Paths() const;
  EngineTotals Totals();
  milliseconds deadline_max() const { return options_.deadline_max; }

 private:
  Result<Admitted> Admit(const wire::TransferRequest& request);
  Result<TransferStatus> Refuse(const wire::TransferRequest& request, Error error,
                                TimePoint wait_until);
  void NoteRejection(std::string_view workload, wire::Operation operation, const Error& error);

  const EngineOptions options_;
  const std::vector<std::unique_ptr<transport::Transport>> transports_;
  metrics::Metrics& metrics_;
  TroubleLog refusals_{"a transfer was refused"};
  const std::unique_ptr<PeerBuffers> peers_;
  const std::unique_ptr<ViewTable> views_;
  const std::unique_ptr<DelegatedTransfers> delegated_;
  const std::unique_ptr<TransferAdmission> admission_;
  const std::unique_ptr<StaleRetry> retry_;
  const std::unique_ptr<TransferLoop> loop_;
  const std::shared_ptr<RequestShelf> requests_;
};

}  // namespace gantry::engine
