// This process as a workload of one sidecar: its lease, its memory and its transfers. Open
// registers it, Close ends it; in between every function may be called from every thread.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "client/session/sidecar_link.h"
#include "client/session/transfer_calls.h"
#include "client/session/workload_memory.h"
#include "lib/base/clock.h"
#include "lib/base/result.h"

namespace gantry::client {

class WorkloadSession {
 public:
  static Result<std::shared_ptr<WorkloadSession>> Open(SessionOptions options);

  // Everything fails with kCancelled afterwards. Idempotent. `longest`: to wait for the sidecar;
  // with 0 it is not asked, and sees the hand-off socket close.
  Status Close(milliseconds longest);
  Status Close() { return Close(link_.timeout()); }
  // For the last time: a sidecar that stands still is not asked.
  Status Drop() { return Close(link_.silence().IsOn() ? milliseconds(0) : link_.timeout()); }

  SidecarLink& link() { return link_; }
  WorkloadMemory& memory() { return memory_; }
  TransferCalls& transfers() { return transfers_; }
  // The process that opened it.
  pid_t owner() const { return owner_; }

 private:
  WorkloadSession(SessionOptions options, std::string api_socket);

  const pid_t owner_;
  SidecarLink link_;
  WorkloadMemory memory_;
  TransferCalls transfers_;
};

}  // namespace gantry::client
