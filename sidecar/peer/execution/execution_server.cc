#include "sidecar/peer/execution/execution_server.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "lib/wire/session_times.h"

namespace gantry::peer {
namespace {

constexpr milliseconds kLook{100};  // how often the caller is looked after
constexpr milliseconds kRemembered{600'000};
constexpr size_t kRememberedMax = 65'536;
constexpr size_t kRememberedPerSessionMax = 4096;

wire::PeerExecutionEnd EndedBy(Error error) { return {std::move(error), 0}; }

Error NotStarted() { return {ErrorCode::kCancelled, "the execution was ended before it began"}; }

}  // namespace

ExecutionServer::ExecutionServer(engine::TransferEngine& engine,
                                 const registry::BufferRegistry& registry, size_t running_max,
                                 size_t running_per_session_max)
    : engine_(engine),
      registry_(registry),
      running_max_(running_max),
      running_per_session_max_(running_per_session_max) {}

void ExecutionServer::SetPeers(const PeerDirectory* peers) {
  const MutexLock lock(mutex_);
  peers_ = peers;
}

wire::PeerExecutionEnd ExecutionServer::Execute(const Caller& caller, wire::PeerExecution what) {
  const Key key(caller.session, what.id);
  if (Status entered = Enter(key, caller); !entered) return EndedBy(std::move(entered).error());
  wire::PeerExecutionEnd end = Run(key, caller, &what);
  Leave(key, end);
  return end;
}

std::pair<size_t, size_t> ExecutionServer::CountOf(const std::string& session) const {
  size_t running = 0, remembered = 0;
  for (auto it = entries_.lower_bound({session, {}});
       it != entries_.end() && it->first.first == session; ++it) {
    ++(it->second.caller != nullptr ? running : remembered);
  }
  return {running, remembered};
}

Status ExecutionServer::Enter(const Key& key, const Caller& caller) {
  const MutexLock lock(mutex_);
  ForgetOld();
  if (closed_) return Fail(ErrorCode::kShuttingDown, "this sidecar is stopping");
  if (const auto known = entries_.find(key); known != entries_.end()) {
    if (known->second.end) return Fail(NotStarted());
    return Fail(ErrorCode::kConflict, "an execution of this id runs already");
  }
  if (running_ >= running_max_ || CountOf(key.first).first >= running_per_session_max_) {
    return Fail(ErrorCode::kResourceExhausted,
                "this sidecar executes " + std::to_string(running_) + " transfers for peers",
                "try again when one of them is over, or let the other side execute");
  }
  ++running_;
  entries_[key].caller = &caller;
  return {};
}

void ExecutionServer::Leave(const Key& key, const wire::PeerExecutionEnd& end) {
  const MutexLock lock(mutex_);
  --running_;
  Entry entry;
  entry.end = end;
  entries_[key] = std::move(entry);
  ended_.emplace_back(Clock::now(), key);
  changed_.NotifyAll();
}

wire::PeerExecutionEnd ExecutionServer::Run(const Key& key, const Caller& caller,
                                            wire::PeerExecution* what) {
  auto request = RequestOf(caller, what);
  if (!request) return EndedBy(std::move(request).error());
  const std::string workload = request->workload;
  // The caller can take back what this sidecar touches through that session, and through no later
  // one: so it must be there still when everything is resolved.
  auto status = engine_.Submit(*std::move(request), Clock::now(), [&]() -> Status {
    if (caller.gone()) return Fail(NotStarted());
    RETURN_IF_ERROR(ProvenPeer(caller, *what));
    return Begin(key);
  });
  if (!status) return EndedBy(std::move(status).error());
  const std::string id = status->id;
  bool stop = false;
  caller.on_status(*status);
  uint64_t told = status->bytes_moved;
  while (!engine::IsTerminal(status->state)) {
    if (stop || caller.gone() || Stopped(key)) {
      stop = true;
      status = engine_.Cancel(workload, id, Clock::now() + kLook);
    } else {
      status = engine_.Get(workload, id, Clock::now() + kLook);
    }
    // Only of a workload that ended, when it was quiet.
    if (!status) return EndedBy(std::move(status).error());
    if (IsTerminal(status->state) || status->bytes_moved == told) continue;
    told = status->bytes_moved;
    caller.on_status(*status);
  }
  return {status->error, status->bytes_moved};
}

Result<wire::TransferRequest> ExecutionServer::RequestOf(const Caller& caller,
                                                         wire::PeerExecution* what) {
  const bool read = what->operation == wire::Operation::kRead;  // the caller's word
  wire::TransferRequest request;
  request.workload = what->callees.front().workload;
  request.operation = read ? wire::Operation::kWrite : wire::Operation::kRead;
  request.executor = wire::Executor::kSelf;
  request.requested_by = caller.name;
  request.deadline_ms =
      std::min<uint64_t>(what->deadline_ms, static_cast<uint64_t>(engine_.deadline_max().count()));
  request.priority = what->priority;
  request.require_path = what->require_path;
  // Before a buffer is looked for: who may not see a workload does not learn what it has.
  const wire::Access granted = caller.grant.Over(request.workload);
  if (read ? !granted.remote_read : !granted.remote_write) {
    return Fail(
        ErrorCode::kPermissionDenied,
        "the peer's certificate gives no such access to workload '" + request.workload + "'",
        "the owner's --peer-rules say which names may ask for what");
  }
  for (const wire::BufferReference& reference : what->callees) {
    ASSIGN_OR_RETURN(const std::shared_ptr<registry::Buffer> buffer,
                     registry_.ByName(reference.workload, reference.buffer));
    const wire::Access& access = buffer->description().access;
    if (read ? !access.remote_read : !access.remote_write) {
      return Fail(ErrorCode::kPermissionDenied,
                  "buffer '" + reference.workload + "/" + reference.buffer + "' does not grant " +
                      (read ? "remote_read" : "remote_write"),
                  "its owner grants it at registration, in `access`");
    }
    // The engine refuses another generation.
    request.local.push_back({{}, {}, reference.buffer, reference.generation});
  }
  ASSIGN_OR_RETURN(const std::string peer, ProvenPeer(caller, *what));
  for (const wire::BufferReference& reference : what->callers) {
    request.remote.push_back({peer, reference.workload, reference.buffer, reference.generation});
  }
  request.ranges = std::move(what->ranges);
  for (wire::TransferRange& range : request.ranges) {
    std::swap(range.local_index, range.remote_index);
    std::swap(range.local_offset, range.remote_offset);
  }
  return request;
}

Result<std::string> ExecutionServer::ProvenPeer(const Caller& caller,
                                                const wire::PeerExecution& what) const {
  std::optional<std::string> peer;
  {
    const MutexLock lock(mutex_);
    if (peers_ != nullptr) peer = peers_->NameByProofs(what.proofs);
  }
  if (peer) return *std::move(peer);
  return Fail(ErrorCode::kPeerUnavailable, "this sidecar has no session with '" + caller.name + "'",
              "PUT /v1/peers/" + caller.name + " at this sidecar too");
}

Status ExecutionServer::Begin(const Key& key) {
  const MutexLock lock(mutex_);
  Entry& entry = entries_.at(key);
  if (closed_ || entry.stop) return Fail(NotStarted());
  entry.begun = true;
  return {};
}

bool ExecutionServer::Stopped(const Key& key) const {
  const MutexLock lock(mutex_);
  return closed_ || entries_.at(key).stop;
}

Result<wire::PeerExecutionEnd> ExecutionServer::End(const std::string& session,
                                                    const std::string& id) {
  const Key key(session, id);
  const TimePoint deadline = Clock::now() + wire::kExecutionEndMax;
  MutexLock lock(mutex_);
  ForgetOld();
  if (entries_.find(key) == entries_.end()) {
    if (CountOf(session).second >= kRememberedPerSessionMax) {
      return Fail(ErrorCode::kResourceExhausted, "too many executions are remembered");
    }
    entries_[key].end = EndedBy(NotStarted());
    ended_.emplace_back(Clock::now(), key);
  }
  const auto found = entries_.find(key);
  found->second.stop = true;
  // To be admitted it may wait for this side's peer, up to its deadline; then it is refused.
  if (!found->second.end && !found->second.begun) return EndedBy(NotStarted());
  while (!found->second.end) {
    if (!changed_.WaitUntil(lock, deadline) && !found->second.end) {
      wire::PeerExecutionEnd pending;
      pending.pending = true;
      return pending;
    }
  }
  return *found->second.end;
}

void ExecutionServer::EndSession(const std::string& session) {
  const MutexLock lock(mutex_);
  for (auto it = entries_.lower_bound({session, {}});
       it != entries_.end() && it->first.first == session; ++it) {
    it->second.stop = true;
  }
}

void ExecutionServer::Close() {
  MutexLock lock(mutex_);
  closed_ = true;
  for (const auto& [key, entry] : entries_) {
    if (entry.caller != nullptr) entry.caller->hang_up();
  }
  while (running_ > 0) changed_.Wait(lock);
}

void ExecutionServer::ForgetOld() {
  const TimePoint now = Clock::now();
  while (!ended_.empty() &&
         (ended_.size() > kRememberedMax || ended_.front().first + kRemembered < now)) {
    entries_.erase(ended_.front().second);
    ended_.pop_front();
  }
}

}  // namespace gantry::peer
