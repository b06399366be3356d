// The workloads known to this sidecar and their leases. A lease is the workload's connection to the
// hand-off socket or, without one, a time to live that PUT renews. Thread-safe.
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
  std::string engine_id;    // the inference engine's id; free text
  uint64_t generation = 0;  // new at every registration
  // secret: authenticates the caller on loopback TCP and at the hand-off socket
  std::string lease_token;
  uid_t uid = 0;             // the registering process's
  pid_t pid = 0;             // the hand-off connection's; 0 before there is one
  std::string process = {};  // identifies that process uniquely on the node; empty: unknown
  milliseconds ttl{0};
  bool attached = false;  // a hand-off connection carries the lease
  size_t fds_held = 0;    // descriptors handed over and still open here
};

struct WorkloadLimits {
  size_t workloads_max = 256;
  size_t engine_id_bytes_max = 256;
  size_t fds_max = 65536;  // over all workloads; derived from RLIMIT_NOFILE
  size_t fds_per_workload_max = 65536;
  milliseconds ttl_default{30'000};
  milliseconds ttl_max{3'600'000};
};

class WorkloadTable {
 public:
  // `on_end` runs once for each workload that ends (lease lost, ttl expired, replaced, deleted). It
  // runs on the thread that noticed, outside the lock, after the workload has left the table. It
  // drops the workload's buffers, by name and generation.
  using EndHandler = std::function<void(const WorkloadInfo& workload, std::string_view why)>;

  WorkloadTable(WorkloadLimits limits, EndHandler on_end);

  // Creates the workload or renews its lease. The same engine id renews; only the same uid or root
  // may. Another engine id is a new registration: kConflict while the old one is attached, else it
  // ends the old one. Errors name "/name", "/engine_id" or "/ttl_ms".
  Result<WorkloadInfo> Put(const std::string& name, const std::string& engine_id, uid_t caller_uid,
                           std::optional<milliseconds> ttl);
  Result<WorkloadInfo> Get(std::string_view name) const;
  std::vector<WorkloadInfo> List() const;
  // Descriptors that are still open here, also of workloads that have just ended.
  size_t fds_held() const { return total_budget_->held(); }
  // Ends the workload: tokens and lease are invalid and on_end has run when it returns.
  Status Remove(std::string_view name, std::string_view why);

  // Checks that the caller may act for workload `name`. Accepts its lease token; on a Unix socket
  // also its uid, root and this sidecar's own uid. `uid` is empty on TCP. A token that is given
  // must be right. Returns the generation of the current registration.
  Result<uint64_t> Authorize(std::string_view name, std::string_view lease_token,
                             std::optional<uid_t> uid) const;
  // Returns the token's workload, or kUnauthenticated.
  Result<WorkloadInfo> ByToken(std::string_view lease_token) const;

  // Binds a hand-off connection to the lease; a second one is kConflict. `uid` must be the
  // workload's or root.
  Result<WorkloadInfo> Attach(std::string_view lease_token, pid_t pid, uid_t uid,
                              std::string process = {});
  // Ends the workload if `generation` is still current.
  void Detach(std::string_view name, uint64_t generation, std::string_view why);
  bool IsCurrent(std::string_view name, uint64_t generation) const;
  // Keeps the descriptors and returns a token for each. All or none; kResourceExhausted beyond a
  // budget.
  Result<std::vector<std::string>> KeepFds(std::string_view name, uint64_t generation,
                                           std::vector<UniqueFd> fds);
  // All or none: an unknown token releases nothing. Registered allocations keep their descriptors.
  Status ReleaseFds(std::string_view name, uint64_t generation,
                    const std::vector<std::string>& tokens);
  // kNotFound for a token that does not belong to this workload.
  Result<std::shared_ptr<const UniqueFd>> FdByToken(std::string_view name,
                                                    std::string_view token) const;

  // Ends the workloads whose ttl has expired at `now`. Returns when the next one expires;
  // TimePoint::max() when there is none.
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
