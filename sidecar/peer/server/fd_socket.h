// The descriptor socket: takes tickets, sends descriptors. Keeps each initiator's lease connection
// and reports its end. Never blocks on a client: a client that does not read its answer is dropped.
// One thread of its own; the owner calls Start and the destructor.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/clock.h"
#include "lib/base/result.h"
#include "lib/base/uid_set.h"
#include "lib/base/unique_fd.h"

namespace gantry::peer {

// Called on the socket's thread.
class FdSocketHandler {
 public:
  virtual ~FdSocketHandler() = default;
  // Returns the session.
  virtual Result<std::string> AttachLease(std::string_view lease_ticket) = 0;
  virtual Result<std::vector<std::shared_ptr<const UniqueFd>>> Redeem(const std::string& session,
                                                                      std::string_view ticket) = 0;
  // Called when the initiator or the kernel ends the connection, never when this side does.
  virtual void LeaseEnded(const std::string& session) = 0;
};

class FdSocket {
 public:
  struct Options {
    std::string path;
    mode_t mode = 0660;
    UidSet uids_allowed;
    size_t connections_max = 1024;
    milliseconds attach_timeout{5'000};  // a connection without a lease is closed then
  };

  static Result<std::unique_ptr<FdSocket>> Start(Options options, FdSocketHandler& handler);
  virtual ~FdSocket() = default;

  virtual size_t connections() const = 0;
  virtual uint64_t descriptors_sent() const = 0;
};

}  // namespace gantry::peer
