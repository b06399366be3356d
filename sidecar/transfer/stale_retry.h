// The only code that retries a transfer. It gets fresh descriptions of remote buffers after the
// peer refused old ones or restarted: once, at admission or after the start. After a lost path it
// takes another one, once. REQUIRES that no byte of the first attempt can move. Thread-safe.
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
    std::vector<uint64_t> stale;  // generations of the refused buffers
    Error refusal;
    TimePoint deadline;
    wire::Path path = wire::Path::kTcp;  // taken by the first attempt
    // Set when the first attempt had started and reached its fence: its buffers. The second attempt
    // may differ only in the registrations of remote buffers.
    struct Remote {
      uint64_t peer_registration_id = 0;
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

  // True when another attempt may succeed after admission refused the first with this error. A
  // request by view is not retried there: its admission renews the view.
  static bool HelpsAdmission(const Error& refusal, const wire::TransferRequest& request);
  // True when another attempt may succeed after this error.
  static bool Helps(const Error& refusal, const wire::TransferRequest& request);

  static Attempt::Used UsedBy(const Admitted& admitted);
  // Returns the attempt to try next. None: this was the second, another would not help, or all
  // chunks were moved. REQUIRES that the operation is finished and still there.
  static std::optional<Attempt> AttemptAfter(const Transfer& transfer);

  // Refreshes and admits; may block until the attempt's deadline.
  Result<Admitted> AdmitAgain(const Attempt& attempt);
  // Runs AdmitAgain on a thread of its own pool, which calls `done`.
  void Post(Attempt attempt, Done done) EXCLUDES(mutex_);
  // Answers waiting and later attempts with kShuttingDown. Returns when none waits for a peer any
  // more. Idempotent.
  void Close() EXCLUDES(mutex_);

 private:
  // True when the request names no generation that a fresh description would contradict.
  static bool IsOpenToAnother(const wire::TransferRequest& request);
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
