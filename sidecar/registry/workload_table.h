// The workloads known to this sidecar and their leases. A lease is the workload's connection to
// the hand-off socket, or, without one, a time to live that PUT renews. Thread-safe.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/clock.h"
#include "lib/base/mutex.h"
#include "lib/base/result.h"
#include "lib/base/unique_fd.h"
#include "sidecar/registry/fd_budget.h"

namespace gantry::registry {

struct WorkloadInfo {
  std::string name;
  std::string engine_id;     // the inference engine's own id; free text
  uint64_t generation = 0;   // new at every registration
  std::string lease_token;   // secret: names the caller on loopback TCP and at the hand-off socket
  uid_t uid = 0;             // of the process that registered it
  pid_t pid = 0;             // of the hand-off connection; 0 before there is one
  std::string process = {};  // of it, as no other process of the node has it; empty: not known
  milliseconds ttl{0};
  bool attached = false;  // a hand-off connection holds the lease
  size_t fds_held = 0;    // descriptors handed over and still open here
};

struct WorkloadLimits {
  size_t workloads_max = 256;
  size_t engine_id_bytes_max = 256;
  size_t fds_max = 65536;  // of all workloads together; set from RLIMIT_NOFILE
  size_t fds_per_workload_max = 65536;
  milliseconds ttl_default{30'000};
  milliseconds ttl_max{3'600'000};
};

class WorkloadTable {
 public:
  // `on_end` runs once for each workload that ends (lease lost, ttl over, deleted), on the thread
  // that noticed, outside of the lock and after the workload has left the table: it drops the
  // workload's buffers, by name and generation.
  using EndHandler = std::function<void(const WorkloadInfo& workload, std::string_view why)>;

  WorkloadTable(WorkloadLimits limits, EndHandler on_end);

  // Creates the workload or renews its lease. An existing one is renewed by the same uid with the
  // same engine id; another engine id is a new registration: refused with kConflict while the old
  // one is attached, else it ends the old one. Errors name "/name", "/engine_id" or "/ttl_ms".
  Result<WorkloadInfo> Put(const std::string& name, const std::string& engine_id, uid_t caller_uid,
                           std::optional<milliseconds> ttl);
  Result<WorkloadInfo> Get(std::string_view name) const;
  std::vector<WorkloadInfo> List() const;
  // Descriptors of all workloads that are still open here, also of workloads that ended just now.
  size_t fds_held() const { return total_budget_->held(); }
  // Ends the workload: tokens and lease are gone, on_end has run when it returns.
  Status Remove(std::string_view name, std::string_view why);

  // Who may act for workload `name`: the holder of its lease token, or on a Unix socket its uid,
  // root, and this sidecar's own uid. `uid` is empty on TCP. A token that is given must be right.
  // The generation of the registration that it holds for.
  Result<uint64_t> Authorize(std::string_view name, std::string_view lease_token,
                             std::optional<uid_t> uid) const;
  // The workload that this token belongs to, or kUnauthenticated.
  Result<WorkloadInfo> ByToken(std::string_view lease_token) const;

  // Hand-off: attach binds a connection to the lease; a second one is kConflict. `uid` must be the
  // workload's or root.
  Result<WorkloadInfo> Attach(std::string_view lease_token, pid_t pid, uid_t uid,
                              std::string process = {});
  // Ends the workload if `generation` is still the current one.
  void Detach(std::string_view name, uint64_t generation, std::string_view why);
  bool IsCurrent(std::string_view name, uint64_t generation) const;
  // Keeps the descriptors and returns a token for each; all or none, within the budgets.
  Result<std::vector<std::string>> KeepFds(std::string_view name, uint64_t generation,
                                           std::vector<UniqueFd> fds);
  // All or none: an unknown token releases nothing. Allocations that were registered keep theirs.
  Status ReleaseFds(std::string_view name, uint64_t generation,
                    const std::vector<std::string>& tokens);
  // kNotFound for a token that this workload does not have, whoever else has it.
  Result<std::shared_ptr<const UniqueFd>> FdByToken(std::string_view name,
                                                    std::string_view token) const;

  // Ends those whose ttl is over at `now`; returns when the next one is, TimePoint::max() when
  // there is none.
  TimePoint ExpireLeases(TimePoint now);

 private:
  struct Workload {
    WorkloadInfo info;
    TimePoint expires;
    std::shared_ptr<FdBudget> budget;
    std::map<std::string, std::shared_ptr<const UniqueFd>, std::less<>> fds;
  };
  using Workloads = std::map<std::string, std::unique_ptr<Workload>, std::less<>>;

  static WorkloadInfo Snapshot(const Workload& workload);
  Result<milliseconds> CheckPut(const std::string& name, const std::string& engine_id,
                                std::optional<milliseconds> ttl) const;
  std::unique_ptr<Workload> NewWorkload(const std::string& name, const std::string& engine_id,
                                        uid_t uid) const;
  Result<Workload*> Find(std::string_view name) const REQUIRES(mutex_);
  Result<Workload*> Find(std::string_view name, uint64_t generation) const REQUIRES(mutex_);
  Result<Workload*> FindByToken(std::string_view lease_token) const REQUIRES(mutex_);
  void End(std::unique_ptr<Workload> workload, std::string_view why) EXCLUDES(mutex_);

  const WorkloadLimits limits_;
  const EndHandler on_end_;
  const std::shared_ptr<FdBudget> total_budget_;

  mutable Mutex mutex_;
  Workloads workloads_ GUARDED_BY(mutex_);
};

}  // namespace gantry::registry
