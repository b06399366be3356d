// The one place that tries a transfer again: once, with a fresh description of its remote buffers,
// after the peer refused the old one as stale or was restarted. A transfer comes here only when no
// byte of its first attempt can move any more. Thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lib/base/mutex.h"
#include "sidecar/engine/peer_buffers.h"
#include "sidecar/engine/transfer_admission.h"
#include "sidecar/metrics/metrics.h"

namespace gantry::engine {

class StaleRetry {
 public:
  struct Attempt {
    std::shared_ptr<const wire::TransferRequest> request;
    std::string peer;
    std::vector<uint64_t> stale;  // generations of the buffers that were refused
    Error refusal;
    TimePoint deadline;
    bool has_begun = false;  // a first attempt was under way: its fence was reached
  };
  using Done = std::function<void(Result<Admitted> again)>;

  StaleRetry(const TransferAdmission& admission, PeerBuffers& peers, metrics::Metrics& metrics);
  ~StaleRetry();  // Close()

  // A fresh description may do better after this.
  static bool Helps(const Error& refusal);
  // It names no generation that a fresh description would not have.
  static bool IsOpenToAnother(const wire::TransferRequest& request);

  // Refreshes and admits; may block until the attempt's deadline.
  Result<Admitted> AdmitAgain(const Attempt& attempt);
  // The same on a thread of this; `done` is called by it.
  void Post(Attempt attempt, Done done) EXCLUDES(mutex_);
  // What waits is answered with kShuttingDown, and so is what comes; returns when nothing asks the
  // peers any more. Idempotent.
  void Close() EXCLUDES(mutex_);

 private:
  void Run() EXCLUDES(mutex_);

  const TransferAdmission& admission_;
  PeerBuffers& peers_;
  metrics::Metrics& metrics_;

  Mutex mutex_;
  Condition changed_;
  std::deque<std::pair<Attempt, Done>> waiting_ GUARDED_BY(mutex_);
  bool closed_ GUARDED_BY(mutex_) = false;
  std::vector<std::jthread> threads_;
};

}  // namespace gantry::engine
