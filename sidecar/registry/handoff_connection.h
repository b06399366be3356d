// One client of the hand-off socket: reads its messages, answers each, and holds its lease. Never
// blocks. While a reply waits for room, nothing more is read. Used by one thread at a time.
#pragma once

#include <string>

#include "lib/base/clock.h"
#include "lib/base/fd_passing.h"
#include "lib/base/result.h"
#include "lib/base/unique_fd.h"
#include "lib/codec/handoff_protocol.h"
#include "sidecar/registry/workload_table.h"

namespace gantry::registry {

class HandoffConnection {
 public:
  // The event to wait for before the next call.
  enum class Next { kReadable, kWritable, kClose };

  // `socket` is non-blocking.
  static Result<HandoffConnection> Create(UniqueFd socket, WorkloadTable& workloads);

  Next OnReadable();
  Next OnWritable();

  int socket() const { return socket_.get(); }
  // Readable when the client's process has ended; -1 when the kernel lacks support.
  int process() const { return process_.get(); }
  TimePoint connected_at() const { return connected_at_; }
  bool attached() const { return attached_; }
  // The lease that it holds; valid when attached.
  const std::string& workload() const { return workload_; }
  uint64_t generation() const { return generation_; }

 private:
  HandoffConnection(UniqueFd socket, UniqueFd process, PeerCredentials credentials,
                    WorkloadTable& workloads);
  Result<wire::HandoffReply> Handle(FdMessage message);
  Result<wire::HandoffReply> Attach(const wire::HandoffRequest& request);
  Next Reply(std::string text);

  WorkloadTable* workloads_;
  UniqueFd socket_;
  UniqueFd process_;
  PeerCredentials credentials_;
  TimePoint connected_at_ = Clock::now();
  std::string unsent_reply_;
  bool attached_ = false;
  std::string workload_;
  uint64_t generation_ = 0;
};

}  // namespace gantry::registry
