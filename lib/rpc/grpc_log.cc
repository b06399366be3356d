#include "lib/rpc/grpc_log.h"

#include <grpc/support/log.h>

#include <atomic>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "lib/base/log.h"
#include "lib/base/log_rate_limiter.h"

namespace gantry::rpc {
namespace {

constexpr std::string_view kHandshakes[] = {"ssl_transport_security.cc", "security_handshaker.cc"};
// It calls an error what is none: a peer's certificate is for its pod and not for a host.
constexpr std::string_view kNoHost = "No match found for server name";

// Said where a call is refused with RESOURCE_EXHAUSTED because no thread could be made for it.
constexpr std::string_view kNoCallThread = "Could not create grpc_sync_server worker-thread";

std::atomic<size_t> call_threads_refused = 0;

void LogNoThread() {
  static log::RateLimiter limiter;
  ++call_threads_refused;
  const auto untold = limiter.Pass();
  if (!untold) return;
  log::Warning("a call was refused: gRPC could make no thread for it",
               {{"hint", "raise the pod's limit of processes (pids.max)"},
                {"more_since_the_last_line", *untold}});
}

bool IsAboutHandshakes(std::string_view file) {
  for (const std::string_view each : kHandshakes) {
    if (file.ends_with(each)) return true;
  }
  return false;
}

// Of each kind of failure now and again, as a peer tries again and again, and whoever reaches the
// port can make one fail. What gRPC says of it names no peer.
class HandshakeLog {
 public:
  void Log(std::string_view said) {
    const auto untold = LimiterOf(said).Pass();
    if (!untold) return;
    log::Warning("a TLS handshake with a peer failed",
                 {{"said", said}, {"more_since_the_last_line", *untold}});
  }

 private:
  static constexpr size_t kKindsMax = 32;

  log::RateLimiter& LimiterOf(std::string_view said) {
    const MutexLock lock(mutex_);
    const auto known = kinds_.find(said);
    if (known != kinds_.end()) return known->second;
    return kinds_.size() < kKindsMax ? kinds_[std::string(said)] : others_;
  }

  Mutex mutex_;
  std::map<std::string, log::RateLimiter, std::less<>> kinds_
      GUARDED_BY(mutex_);  // keeps their places
  log::RateLimiter others_;
};

void Write(gpr_log_func_args* said) {
  const bool is_error = said->severity == GPR_LOG_SEVERITY_ERROR &&
                        !std::string_view(said->message).starts_with(kNoHost);
  const log::Fields fields = {{"said", said->message}, {"file", said->file}, {"line", said->line}};
  if (is_error && std::string_view(said->message).starts_with(kNoCallThread)) {
    LogNoThread();
  } else if (!is_error) {
    log::Debug("gRPC says something", fields);
  } else if (IsAboutHandshakes(said->file)) {
    static HandshakeLog handshakes;
    handshakes.Log(said->message);
  } else {
    log::Error("gRPC reports an error", fields);
  }
}

}  // namespace

void TakeGrpcLog() { gpr_set_log_function(&Write); }

size_t CallThreadsRefused() { return call_threads_refused; }

}  // namespace gantry::rpc
