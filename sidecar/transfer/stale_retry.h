// The one place that tries a transfer again, once: with a fresh description of its remote buffers
// after the peer refused the old one as stale or was restarted, and by another path after its own
// was lost. It comes here only when no byte of its first attempt can move any more. Thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lib/base/mutex.h"
#include "sidecar/remote/peer_buffers.h"
#include "sidecar/transfer/transfer_admission.h"

namespace gantry::engine {

struct Transfer;

class StaleRetry {
 public:
  struct Attempt {
    std::shared_ptr<const wire::TransferRequest> request;
    std::string peer;
    std::vector<uint64_t> stale;  // generations of the buffers that were refused
    Error refusal;
    TimePoint deadline;
    wire::Path path = wire::Path::kTcp;  // that it took
    // Of a first attempt that was under way, and whose fence was reached: what it used. The second
    // one may differ in the registrations of the remote buffers, and in nothing else.
    struct Remote {
      uint64_t acquaintance = 0;
      std::string workload, buffer;
    };
    struct Used {
      std::vector<uint64_t> local;  // generations
      std::vector<Remote> remote;
    };
    std::optional<Used> used;
  };
  using Done = std::function<void(Result<Admitted> again)>;

  StaleRetry(const TransferAdmission& admission, PeerBuffers& peers);
  ~StaleRetry();  // Close()

  // Another attempt may do better after this.
  static bool Helps(const Error& refusal, const wire::TransferRequest& request);
  // It names no generation that a fresh description would not have.
  static bool IsOpenToAnother(const wire::TransferRequest& request);

  static Attempt::Used UsedBy(const Admitted& admitted);
  // What to try after this attempt; none: it was the second, another one would not help, or all
  // chunks were moved. REQUIRES that the operation is finished and still there.
  static std::optional<Attempt> AttemptAfter(const Transfer& transfer);

  // Refreshes and admits; may block until the attempt's deadline.
  Result<Admitted> AdmitAgain(const Attempt& attempt);
  // The same on a thread of this; `done` is called by it.
  void Post(Attempt attempt, Done done) EXCLUDES(mutex_);
  // What waits is answered with kShuttingDown, and so is what comes; returns when nothing asks the
  // peers any more. Idempotent.
  void Close() EXCLUDES(mutex_);

 private:
  void Run() EXCLUDES(mutex_);
  Status AddThread() REQUIRES(mutex_);

  const TransferAdmission& admission_;
  PeerBuffers& peers_;

  Mutex mutex_;
  Condition changed_;
  std::deque<std::pair<Attempt, Done>> waiting_ GUARDED_BY(mutex_);
  bool closed_ GUARDED_BY(mutex_) = false;
  std::vector<std::jthread> threads_ GUARDED_BY(mutex_);
};

}  // namespace gantry::engine
