#include "sidecar/transfer/transfer_engine.h"

#include <algorithm>
#include <utility>

#include "sidecar/remote/peer_buffers.h"
#include "sidecar/transfer/path_selector.h"
#include "sidecar/transfer/retry_request_store.h"
#include "sidecar/transfer/stale_retry.h"
#include "sidecar/transfer/transfer_admission.h"
#include "sidecar/transfer/transfer_loop.h"
#include "sidecar/view/view_table.h"

namespace gantry::engine {
TransferEngine::TransferEngine(EngineOptions options, worker::DriverSleep& sleep,
                               transport::CopyHints& hints,
                               std::vector<std::unique_ptr<transport::Transport>> transports,
                               registry::BufferRegistry& registry, EventLog& events,
                               metrics::Metrics& metrics)
    : options_(options),
      hints_(hints),
      transports_(std::move(transports)),
      metrics_(metrics),
      peers_(std::make_unique<PeerBuffers>(options_.peer_waits_max)),
      views_(std::make_unique<ViewTable>(
          ViewLimits{options_.views_max, options_.view_pairs_max, options_.references_max},
          registry, *peers_)),
      delegated_(std::make_unique<DelegatedTransfers>([&sleep] { sleep.WakeWaiter(); })),
      admission_(std::make_unique<TransferAdmission>(options_, registry, transports_, hints_,
                                                     *peers_, *views_, *delegated_)),
      retry_(std::make_unique<StaleRetry>(*admission_, *peers_)),
      loop_(std::make_unique<TransferLoop>(
          TransferDriver::Parts{options_, transports_, *delegated_, *retry_, events, metrics},
          sleep)),
      requests_(std::make_shared<RetryRequestStore>()) {}

TransferEngine::~TransferEngine() {
  Close();
  StopRetries();  // they are answered while the loop is there
}

Status TransferEngine::started() const { return loop_->started(); }

void TransferEngine::Close() { loop_->Close(); }

void TransferEngine::StopRetries() { retry_->Close(); }

void TransferEngine::SetPeerGateway(PeerGateway* gateway) { peers_->SetGateway(gateway); }

void TransferEngine::SetPeerExecutor(PeerExecutor* executor) { delegated_->SetExecutor(executor); }

void TransferEngine::SetMessaging(NotificationCenter& notifications, HoldClient& holds) {
  loop_->SetNotifications(&notifications);
  admission_->SetHolds(&holds);
}

Result<TransferStatus> TransferEngine::Submit(wire::TransferRequest request, TimePoint wait_until,
                                              const std::function<Status()>& last_check) {
  auto admitted = Admit(request);
  if (admitted && last_check != nullptr) {
    if (Status checked = last_check(); !checked) admitted = Fail(std::move(checked).error());
  }
  if (!admitted) return Refuse(request, std::move(admitted).error(), wait_until);
  const wire::Operation operation = request.operation;
  const std::string workload = request.workload;
  if (!admitted->status.peer.empty()) {
    request.id = admitted->status.id;
    admitted->request = requests_->Keep(std::move(request));
  }
  auto inserted = loop_->Insert(*std::move(admitted), wait_until);
  if (!inserted) NoteRejection(workload, operation, inserted.error());
  return inserted;
}

// Describes stale remote buffers again. That is not done once more after the transfer began.
Result<Admitted> TransferEngine::Admit(const wire::TransferRequest& request) {
  const TimePoint begun = Clock::now();
  auto admitted = admission_->Admit(request);
  if (admitted || !StaleRetry::HelpsAdmission(admitted.error(), request)) return admitted;
  StaleRetry::Attempt attempt;
  attempt.request = {std::shared_ptr<const void>(), &request};  // not owned
  attempt.peer = request.remote.front().peer;
  attempt.refusal = std::move(admitted).error();
  attempt.deadline =
      begun + (request.deadline_ms ? milliseconds(static_cast<int64_t>(*request.deadline_ms))
                                   : options_.deadline_default);
  admitted = retry_->AdmitAgain(attempt);
  if (!admitted) return admitted;
  metrics_.TransferRetried(attempt.refusal.code);
  admitted->begun = begun;
  return admitted;
}

Result<TransferStatus> TransferEngine::Refuse(const wire::TransferRequest& request, Error error,
                                              TimePoint wait_until) {
  // A repeated request must find its transfer even when its buffers are gone by now.
  if (!request.id.empty()) {
    auto known = loop_->GetSame(request, wait_until);
    if (known || known.error().code == ErrorCode::kConflict) return known;
  }
  NoteRejection(request.workload, request.operation, error);
  return Fail(std::move(error));
}

void TransferEngine::NoteRejection(std::string_view workload, wire::Operation operation,
                                   const Error& error) {
  metrics::TransferSample sample;
  sample.operation = operation;
  sample.outcome = metrics::Outcome::kRejected;
  metrics_.TransferEnded(sample);
  metrics_.AccessError(std::nullopt, error.code);
  refusals_.Log(workload, wire::NameOf(operation), "", error);
}

Result<TransferStatus> TransferEngine::Get(std::string_view workload, std::string_view id,
                                           TimePoint wait_until) {
  return loop_->Get(workload, id, wait_until);
}

Result<TransferStatus> TransferEngine::Cancel(std::string_view workload, std::string_view id,
                                              TimePoint wait_until) {
  return loop_->Cancel(workload, id, wait_until);
}

std::vector<TransferStatus> TransferEngine::List(std::string_view workload, bool active_only,
                                                 size_t limit) {
  return loop_->List(workload, active_only, limit);
}

void TransferEngine::StopTransfersOf(std::string_view workload, uint64_t workload_generation,
                                     Error why) {
  const auto match = [workload = std::string(workload),
                      workload_generation](const Transfer& transfer) {
    const Admitted& admitted = transfer.admitted;
    return admitted.status.workload == workload &&
           (workload_generation == 0 || admitted.workload_generation == workload_generation);
  };
  if (workload_generation != 0) loop_->EndWorkload(workload_generation);
  loop_->Stop(match, TransferState::kCancelled, std::move(why));
  loop_->ForgetIds(match);
  views_->EndWorkload(workload, workload_generation);
}

void TransferEngine::StopTransfersUsing(std::shared_ptr<const RemoteBuffer> buffer, Error why) {
  // The handle itself: after a reconnection the same registration is there under another one.
  loop_->Stop(
      [buffer = std::move(buffer)](const Transfer& transfer) {
        const auto& remotes = transfer.admitted.remotes;
        return std::find(remotes.begin(), remotes.end(), buffer) != remotes.end();
      },
      TransferState::kFailed, std::move(why));
}

std::vector<wire::PathReport> TransferEngine::Paths() const { return ProbePaths(transports_); }

EngineTotals TransferEngine::Totals() { return loop_->Totals(); }

}  // namespace gantry::engine
