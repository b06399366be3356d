// The hand-off socket. A workload attaches its lease, passes descriptors and gets tokens. When the
// socket closes or the process dies (pidfd), the workload ends within a second, exactly once. One
// thread serves all clients. The owner calls Start and the destructor.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>

#include "lib/base/clock.h"
#include "lib/base/result.h"
#include "lib/base/unique_fd.h"
#include "sidecar/registry/handoff_connection.h"
#include "sidecar/registry/lease_ender.h"
#include "sidecar/registry/workload_table.h"

namespace gantry::registry {

class HandoffServer {
 public:
  struct Options {
    std::string socket_path;
    mode_t socket_mode = 0660;
    size_t connections_max = 1024;
    milliseconds attach_timeout{5'000};  // a connection without a lease is closed then
  };

  // Also expires leases by time from now on. `workloads` outlives the server.
  static Result<std::unique_ptr<HandoffServer>> Start(Options options, WorkloadTable& workloads);
  HandoffServer(const HandoffServer&) = delete;
  HandoffServer& operator=(const HandoffServer&) = delete;
  ~HandoffServer();  // stops; attached workloads end

 private:
  using Connections = std::map<uint64_t, HandoffConnection>;  // by id, oldest first

  HandoffServer(Options options, WorkloadTable& workloads, UniqueFd listener, UniqueFd poller,
                UniqueFd waker);
  void Serve(const std::stop_token& stop);
  void Dispatch(uint64_t key, uint32_t events);
  void Accept();
  void Add(UniqueFd socket);
  bool MakeRoom();
  void Proceed(Connections::iterator at, HandoffConnection::Next next);
  void Close(Connections::iterator at, std::string_view why);
  void Sweep(TimePoint now);
  void PauseAccepting(bool paused);

  const Options options_;
  WorkloadTable& workloads_;
  LeaseEnder ender_;
  const UniqueFd listener_;
  const UniqueFd poller_;
  const UniqueFd waker_;

  // Used by the server's thread.
  Connections connections_;
  uint64_t next_id_ = 1;
  bool accepting_paused_ = false;

  std::jthread thread_;
};

}  // namespace gantry::registry
