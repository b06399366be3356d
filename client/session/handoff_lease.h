// This process's end of the hand-off socket: the lease itself, and the way descriptors travel to
// the sidecar. While it is open the workload lives. Thread-safe; one request at a time.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lib/base/clock.h"
#include "lib/base/mutex.h"
#include "lib/base/result.h"
#include "lib/base/unique_fd.h"
#include "lib/codec/handoff_protocol.h"

namespace gantry::client {

class HandoffLease {
 public:
  static Result<std::unique_ptr<HandoffLease>> Attach(const std::string& socket_path,
                                                      const std::string& lease_token,
                                                      milliseconds timeout);

  // Gives the sidecar duplicates of descriptors, kFdsPerMessageMax at most; the tokens, in the same
  // order, name them in registrations.
  Result<std::vector<std::string>> HandOver(std::span<const int> fds);
  Status Release(const std::vector<std::string>& tokens);
  Status Ping();

  // False once the sidecar has closed its end. Asks nothing of the sidecar.
  bool alive() const;

  // Ends the lease at once, also while another thread is in a request.
  void End();

 private:
  explicit HandoffLease(UniqueFd socket) : socket_(std::move(socket)) {}
  Result<wire::HandoffReply> Exchange(const wire::HandoffRequest& request,
                                      std::span<const int> fds);

  const UniqueFd socket_;
  Mutex mutex_;                             // one request and its reply at a time
  bool broken_ GUARDED_BY(mutex_) = false;  // a reply is missing: the next one would be its
};

}  // namespace gantry::client
