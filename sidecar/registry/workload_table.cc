#include "sidecar/registry/workload_table.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "lib/base/log.h"
#include "lib/base/name.h"
#include "lib/base/random_id.h"
#include "sidecar/registry/workload_end.h"

namespace gantry::registry {
namespace {

constexpr uid_t kRootUid = 0;

}  // namespace

WorkloadTable::WorkloadTable(WorkloadLimits limits, EndHandler on_end)
    : limits_(limits),
      on_end_(std::move(on_end)),
      total_budget_(std::make_shared<FdBudget>(limits.fds_max)) {}

Result<milliseconds> WorkloadTable::CheckPut(const std::string& name, const std::string& engine_id,
                                             std::optional<milliseconds> ttl) const {
  RETURN_IF_ERROR(CheckName(name, "/name"));
  if (engine_id.size() > limits_.engine_id_bytes_max) {
    return Fail(
        ErrorCode::kInvalidArgument,
        "engine_id is longer than " + std::to_string(limits_.engine_id_bytes_max) + " bytes", {},
        "/engine_id");
  }
  const milliseconds chosen = ttl.value_or(limits_.ttl_default);
  if (chosen <= milliseconds{0} || chosen > limits_.ttl_max) {
    return Fail(ErrorCode::kInvalidArgument,
                "ttl_ms is not in 1 to " + std::to_string(limits_.ttl_max.count()), {}, "/ttl_ms");
  }
  return chosen;
}

std::unique_ptr<WorkloadTable::Workload> WorkloadTable::NewWorkload(const std::string& name,
                                                                    const std::string& engine_id,
                                                                    uid_t uid) const {
  auto workload = std::make_unique<Workload>();
  workload->info.name = name;
  workload->info.engine_id = engine_id;
  workload->info.generation = RandomGeneration();
  workload->info.lease_token = RandomToken();
  workload->info.uid = uid;
  workload->budget = std::make_shared<FdBudget>(limits_.fds_per_workload_max);
  return workload;
}

Result<WorkloadInfo> WorkloadTable::Put(const std::string& name, const std::string& engine_id,
                                        uid_t caller_uid, std::optional<milliseconds> ttl) {
  ASSIGN_OR_RETURN(const milliseconds lease, CheckPut(name, engine_id, ttl));
  std::unique_ptr<Workload> replaced;
  WorkloadInfo info;
  {
    MutexLock lock(mutex_);
    const auto found = workloads_.find(name);
    const bool exists = found != workloads_.end();
    if (!exists && workloads_.size() >= limits_.workloads_max) {
      return Fail(ErrorCode::kResourceExhausted,
                  "there are " + std::to_string(workloads_.size()) + " workloads already",
                  "remove one, wait until its lease ends, or raise --workloads-max, for which the "
                  "process's limit of descriptors has to be 57 times as high");
    }
    if (exists && found->second->info.uid != caller_uid && caller_uid != kRootUid) {
      return Fail(ErrorCode::kPermissionDenied,
                  "workload '" + name + "' was registered by another user", {}, "/name");
    }
    const bool renews = exists && found->second->info.engine_id == engine_id;
    if (exists && !renews && found->second->info.attached) {
      return Fail(ErrorCode::kConflict,
                  "workload '" + name + "' is attached with engine id '" +
                      found->second->info.engine_id + "'",
                  "choose another name, or end the process that holds it", "/engine_id");
    }
    std::unique_ptr<Workload>& workload = exists ? found->second : workloads_[name];
    if (!renews) replaced = std::exchange(workload, NewWorkload(name, engine_id, caller_uid));
    workload->info.ttl = lease;
    workload->expires = Clock::now() + lease;
    info = Snapshot(*workload);
  }
  if (replaced != nullptr) End(std::move(replaced), kReplaced.why);
  return info;
}

WorkloadInfo WorkloadTable::Snapshot(const Workload& workload) {
  WorkloadInfo info = workload.info;
  info.fds_held = workload.budget->held();
  return info;
}

Result<WorkloadTable::Workload*> WorkloadTable::Find(std::string_view name) const {
  const auto found = workloads_.find(name);
  if (found != workloads_.end()) return found->second.get();
  return Fail(ErrorCode::kNotFound, "there is no workload '" + std::string(name) + "'",
              "register it with PUT /v1/workloads/{name}; it may have lost its lease");
}

Result<WorkloadTable::Workload*> WorkloadTable::Find(std::string_view name,
                                                     uint64_t generation) const {
  ASSIGN_OR_RETURN(Workload * workload, Find(name));
  if (workload->info.generation == generation) return workload;
  return Fail(ErrorCode::kStaleGeneration,
              "workload '" + std::string(name) + "' was registered anew since",
              "attach with the new lease token");
}

Result<WorkloadTable::Workload*> WorkloadTable::FindByToken(std::string_view lease_token) const {
  for (const auto& [name, workload] : workloads_) {
    if (EqualSecrets(workload->info.lease_token, lease_token)) return workload.get();
  }
  return Fail(ErrorCode::kUnauthenticated, "no workload has this lease token",
              "PUT /v1/workloads/{name} answers the current one");
}

Result<WorkloadInfo> WorkloadTable::Get(std::string_view name) const {
  MutexLock lock(mutex_);
  ASSIGN_OR_RETURN(const Workload* workload, Find(name));
  return Snapshot(*workload);
}

std::vector<WorkloadInfo> WorkloadTable::List() const {
  std::vector<WorkloadInfo> list;
  MutexLock lock(mutex_);
  list.reserve(workloads_.size());
  for (const auto& [name, workload] : workloads_) list.push_back(Snapshot(*workload));
  return list;
}

Status WorkloadTable::Remove(std::string_view name, std::string_view why) {
  std::unique_ptr<Workload> ended;
  {
    MutexLock lock(mutex_);
    RETURN_IF_ERROR(Find(name));
    const auto found = workloads_.find(name);
    ended = std::move(found->second);
    workloads_.erase(found);
  }
  End(std::move(ended), why);
  return {};
}

void WorkloadTable::Detach(std::string_view name, uint64_t generation, std::string_view why) {
  std::unique_ptr<Workload> ended;
  {
    MutexLock lock(mutex_);
    const auto found = workloads_.find(name);
    if (found == workloads_.end() || found->second->info.generation != generation) return;
    ended = std::move(found->second);
    workloads_.erase(found);
  }
  End(std::move(ended), why);
}

void WorkloadTable::End(std::unique_ptr<Workload> workload, std::string_view why) {
  workload->fds.clear();  // those of registered allocations stay open until these are released
  log::Info("workload ended", {{"workload", workload->info.name}, {"why", why}});
  if (on_end_) on_end_(Snapshot(*workload), why);
}

Result<uint64_t> WorkloadTable::Authorize(std::string_view name, std::string_view lease_token,
                                          std::optional<uid_t> uid) const {
  MutexLock lock(mutex_);
  ASSIGN_OR_RETURN(const Workload* workload, Find(name));
  const WorkloadInfo& info = workload->info;
  if (!lease_token.empty()) {
    if (EqualSecrets(info.lease_token, lease_token)) return info.generation;
    return Fail(ErrorCode::kPermissionDenied,
                "the lease token is not that of workload '" + std::string(name) + "'",
                "the token changes when the workload is registered anew");
  }
  if (!uid) {
    return Fail(ErrorCode::kUnauthenticated, "nothing says who is calling",
                "send the lease token, or use the Unix socket");
  }
  if (*uid == info.uid || *uid == kRootUid || *uid == ::geteuid()) return info.generation;
  return Fail(
      ErrorCode::kPermissionDenied,
      "user " + std::to_string(*uid) + " may not act for workload '" + std::string(name) + "'");
}

Result<WorkloadInfo> WorkloadTable::ByToken(std::string_view lease_token) const {
  MutexLock lock(mutex_);
  ASSIGN_OR_RETURN(const Workload* workload, FindByToken(lease_token));
  return Snapshot(*workload);
}

Result<WorkloadInfo> WorkloadTable::Attach(std::string_view lease_token, pid_t pid, uid_t uid,
                                           std::string process) {
  MutexLock lock(mutex_);
  ASSIGN_OR_RETURN(Workload * workload, FindByToken(lease_token));
  if (uid != workload->info.uid && uid != kRootUid) {
    return Fail(ErrorCode::kPermissionDenied,
                "user " + std::to_string(uid) + " may not attach to workload '" +
                    workload->info.name + "' of user " + std::to_string(workload->info.uid));
  }
  if (workload->info.attached) {
    return Fail(ErrorCode::kConflict,
                "process " + std::to_string(workload->info.pid) + " is attached to workload '" +
                    workload->info.name + "'",
                "one process holds the lease; hand descriptors over through it");
  }
  workload->info.attached = true;
  workload->info.pid = pid;
  workload->info.process = std::move(process);
  return Snapshot(*workload);
}

bool WorkloadTable::IsCurrent(std::string_view name, uint64_t generation) const {
  MutexLock lock(mutex_);
  return Find(name, generation).has_value();
}

Result<std::vector<std::string>> WorkloadTable::KeepFds(std::string_view name, uint64_t generation,
                                                        std::vector<UniqueFd> fds) {
  MutexLock lock(mutex_);
  ASSIGN_OR_RETURN(Workload * workload, Find(name, generation));
  FdBudget& own = *workload->budget;
  if (!own.Take(fds.size())) {
    return Fail(ErrorCode::kResourceExhausted,
                "workload '" + std::string(name) + "' has " + std::to_string(own.held()) +
                    " descriptors open here, of at most " + std::to_string(own.fds_max()),
                "release tokens and delete buffers that are not needed any more, register larger "
                "allocations, or raise --fds-max, which is half of the process's limit of "
                "descriptors less 128 at most");
  }
  if (!total_budget_->Take(fds.size())) {
    own.GiveBack(fds.size());
    return Fail(ErrorCode::kResourceExhausted,
                "all workloads together have " + std::to_string(total_budget_->held()) +
                    " descriptors open here, of at most " +
                    std::to_string(total_budget_->fds_max()),
                "delete buffers that are not needed any more, or raise --fds-max, which is half of "
                "the process's limit of descriptors less 128 at most");
  }
  std::vector<std::string> tokens;
  tokens.reserve(fds.size());
  for (UniqueFd& fd : fds) {
    tokens.push_back(RandomToken());
    workload->fds.emplace(tokens.back(), CountedFd(std::move(fd), workload->budget, total_budget_));
  }
  return tokens;
}

Status WorkloadTable::ReleaseFds(std::string_view name, uint64_t generation,
                                 const std::vector<std::string>& tokens) {
  std::vector<std::shared_ptr<const UniqueFd>> released;  // closes after the lock
  MutexLock lock(mutex_);
  ASSIGN_OR_RETURN(Workload * workload, Find(name, generation));
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (!workload->fds.contains(tokens[i])) {
      return Fail(ErrorCode::kNotFound, "there is no such descriptor", {},
                  "/tokens/" + std::to_string(i));
    }
  }
  for (const std::string& token : tokens) {
    const auto found = workload->fds.find(token);
    if (found == workload->fds.end()) continue;  // named twice
    released.push_back(std::move(found->second));
    workload->fds.erase(found);
  }
  return {};
}

Result<std::shared_ptr<const UniqueFd>> WorkloadTable::FdByToken(std::string_view name,
                                                                 std::string_view token) const {
  MutexLock lock(mutex_);
  ASSIGN_OR_RETURN(const Workload* workload, Find(name));
  const auto found = workload->fds.find(token);
  if (found != workload->fds.end()) return found->second;
  return Fail(ErrorCode::kNotFound,
              "workload '" + std::string(name) + "' handed over no descriptor with this token",
              "hand it over first; tokens end with their workload");
}

TimePoint WorkloadTable::ExpireLeases(TimePoint now) {
  TimePoint next = TimePoint::max();
  std::vector<std::unique_ptr<Workload>> ended;
  {
    MutexLock lock(mutex_);
    for (auto at = workloads_.begin(); at != workloads_.end();) {
      const bool leased_by_time = !at->second->info.attached;
      if (leased_by_time && at->second->expires <= now) {
        ended.push_back(std::move(at->second));
        at = workloads_.erase(at);
        continue;
      }
      if (leased_by_time) next = std::min(next, at->second->expires);
      ++at;
    }
  }
  for (std::unique_ptr<Workload>& workload : ended) End(std::move(workload), kLeaseRanOut.why);
  return next;
}

}  // namespace gantry::registry
