#include "sidecar/peer/execution/execution_client.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "lib/base/log.h"
#include "lib/base/random_id.h"
#include "lib/base/thread.h"
#include "lib/wire/session_times.h"
#include "sidecar/peer/client/call_canceller.h"
#include "sidecar/peer/client/peer_client.h"

namespace gantry::peer {
namespace {

constexpr milliseconds kCutOffRound{1'000};  // then it looks whether it is closed
constexpr milliseconds kPendingMax{70'000};  // beyond what a peer that is asked can need
constexpr milliseconds kSessionsMax{3'000};
constexpr milliseconds kSessionsPoll{20};

Error NoSessionBack(const std::string& peer) {
  return {ErrorCode::kPeerUnavailable,
          "peer '" + peer + "' has no session with this sidecar, whose memory it would use",
          "PUT /v1/peers/{name of this sidecar} at the peer, or let this sidecar execute"};
}

Error Stopped() { return {ErrorCode::kCancelled, "the execution was stopped"}; }

}  // namespace

struct ExecutionClient::Job {
  std::string peer;
  int priority = 0;
  std::function<wire::PeerExecution()> make;
  TimePoint deadline;
  std::shared_ptr<Watcher> watcher;
  CallCanceller stop;  // ends the call that runs
};

namespace {

// The peer's stop is not the end of this sidecar. A cancel there was not by this sidecar's caller.
wire::PeerExecutionEnd AsToldHere(wire::PeerExecutionEnd end, const std::string& peer,
                                  bool stopped) {
  if (!end.error) return end;
  if (stopped) return {Stopped(), end.bytes};
  if (end.error->code == ErrorCode::kShuttingDown || end.error->code == ErrorCode::kCancelled) {
    end.error->code = ErrorCode::kPeerLost;
  }
  end.error = std::move(*end.error).WithContext("peer '" + peer + "'");
  return end;
}

}  // namespace

class ExecutionClient::Handle final : public Execution {
 public:
  Handle(ExecutionClient& client, std::shared_ptr<Job> job)
      : client_(client), job_(std::move(job)) {}
  void Stop() override { client_.StopJob(job_); }

 private:
  ExecutionClient& client_;
  const std::shared_ptr<Job> job_;
};

ExecutionClient::ExecutionClient(PeerDirectory& directory, InitiatorSessions& sessions,
                                 ExecutionClientOptions options)
    : directory_(directory), sessions_(sessions), options_(options) {}

ExecutionClient::~ExecutionClient() { Close(); }

void ExecutionClient::Close() {
  std::deque<std::shared_ptr<Job>> waiting;
  std::vector<std::jthread> threads;
  {
    MutexLock lock(mutex_);
    closed_ = true;
    waiting.swap(waiting_);
    for (const auto& job : running_) job->stop.Cancel();
    changed_.NotifyAll();
  }
  for (const auto& job : waiting) job->watcher->OnEnded({Stopped(), 0});
  {
    MutexLock lock(mutex_);
    while (!threads_.empty()) changed_.Wait(lock);
    threads.swap(ended_);
  }
  for (std::jthread& thread : threads) thread.join();
}

Status ExecutionClient::CanExecute(const std::string& peer) const {
  ASSIGN_OR_RETURN(const std::shared_ptr<PeerClient> client,
                   directory_.ClientOf(peer, Clock::now()));
  if (!client->facts().executes) {
    return Fail(ErrorCode::kVersionMismatch, "peer '" + peer + "' executes nothing for others",
                "upgrade its sidecar");
  }
  const PeerClient::Facts& facts = client->facts();
  if (facts.quiesce_max && *facts.quiesce_max > options_.quiesce_accepted_max) {
    return Fail(ErrorCode::kPathUnavailable,
                "peer '" + peer + "' may need " + std::to_string(facts.quiesce_max->count()) +
                    " ms to be quiet, at most " +
                    std::to_string(options_.quiesce_accepted_max.count()) + " are waited for",
                "lower its --quiesce-ms-max, or let this sidecar execute");
  }
  if (!sessions_.ProofsFor(facts.owner.generation, facts.verified_identity).empty()) return {};
  return Fail(NoSessionBack(peer));
}

std::unique_ptr<ExecutionClient::Execution> ExecutionClient::Execute(
    const std::string& peer, int priority, std::function<wire::PeerExecution()> make,
    TimePoint deadline, std::shared_ptr<Watcher> watcher) {
  auto job = std::make_shared<Job>();
  job->peer = peer;
  job->priority = priority;
  job->make = std::move(make);
  job->deadline = deadline;
  job->watcher = std::move(watcher);
  std::vector<std::jthread> ended;
  std::optional<Error> refusal;
  {
    const MutexLock lock(mutex_);
    ended.swap(ended_);
    if (closed_) {
      refusal = Error(ErrorCode::kShuttingDown, "this sidecar is stopping");
    } else {
      const auto behind = std::find_if(
          waiting_.begin(), waiting_.end(),
          [&](const std::shared_ptr<Job>& other) { return other->priority < priority; });
      waiting_.insert(behind, job);
      refusal = StartThread(peer);
      if (refusal) std::erase(waiting_, job);
    }
  }
  for (std::jthread& thread : ended) thread.join();  // they are past their last step
  if (refusal) job->watcher->OnEnded({std::move(refusal), 0});
  return std::make_unique<Handle>(*this, std::move(job));
}

// If there is room for one more and something that it can do. An error: nobody will do it.
std::optional<Error> ExecutionClient::StartThread(const std::string& peer) {
  const auto at_peer = running_at_.find(peer);
  const bool full =
      at_peer != running_at_.end() && at_peer->second >= options_.running_per_peer_max;
  if (full || threads_.size() >= options_.running_max) return std::nullopt;
  auto thread = gantry::StartThread("gantry-execute", [this] { RunJobs(); });
  if (thread) {
    const std::jthread::id id = thread->get_id();
    threads_.emplace(id, *std::move(thread));
  } else if (threads_.empty()) {
    return std::move(thread).error();
  }
  return std::nullopt;
}

void ExecutionClient::StopJob(const std::shared_ptr<Job>& job) {
  bool waited = false;
  {
    const MutexLock lock(mutex_);
    waited = std::erase(waiting_, job) > 0;
  }
  if (waited) return job->watcher->OnEnded({Stopped(), 0});
  job->stop.Cancel();
}

// Null: the thread that asks has ended.
std::shared_ptr<ExecutionClient::Job> ExecutionClient::TakeJob() {
  const MutexLock lock(mutex_);
  for (auto it = waiting_.begin(); it != waiting_.end(); ++it) {
    size_t& at_peer = running_at_[(*it)->peer];
    if (at_peer >= options_.running_per_peer_max) continue;
    ++at_peer;
    std::shared_ptr<Job> job = std::move(*it);
    waiting_.erase(it);
    running_.push_back(job);
    return job;
  }
  const auto self = threads_.find(std::this_thread::get_id());
  ended_.push_back(std::move(self->second));
  threads_.erase(self);
  changed_.NotifyAll();
  return nullptr;
}

void ExecutionClient::RunJobs() {
  while (const std::shared_ptr<Job> job = TakeJob()) {
    job->watcher->OnEnded(RunToEnd(*job));
    const MutexLock lock(mutex_);
    std::erase(running_, job);
    if (--running_at_[job->peer] == 0) running_at_.erase(job->peer);
  }
}

// A session in each direction: one that was just opened again lacks the other for a moment.
Result<std::shared_ptr<PeerClient>> ExecutionClient::AwaitSessions(const Job& job) {
  const TimePoint until = std::min(job.deadline, Clock::now() + kSessionsMax);
  while (true) {
    // Nothing wakes it when the job is stopped.
    auto client = directory_.ClientOf(job.peer, std::min(until, Clock::now() + kSessionsPoll));
    const bool late = Clock::now() >= until || job.stop.cancelled();
    if (!client && (late || client.error().code != ErrorCode::kDeadlineExceeded)) {
      return Fail(ErrorCode::kPeerUnavailable, client.error().message);
    }
    if (!client) continue;
    const PeerClient::Facts& facts = (*client)->facts();
    if (!sessions_.ProofsFor(facts.owner.generation, facts.verified_identity).empty())
      return client;
    if (late) return Fail(NoSessionBack(job.peer));
    std::this_thread::sleep_for(kSessionsPoll);
  }
}

wire::PeerExecutionEnd ExecutionClient::RunToEnd(Job& job) {
  auto client = AwaitSessions(job);
  if (!client) return {client.error(), 0};
  const PeerClient::Facts facts = (*client)->facts();
  wire::PeerExecution what = job.make();
  what.id = "e-" + HexOf(RandomGeneration());
  what.proofs = sessions_.ProofsFor(facts.owner.generation, facts.verified_identity);
  const auto left = std::chrono::ceil<milliseconds>(job.deadline - Clock::now()).count();
  if (left <= 0) return {Error(ErrorCode::kDeadlineExceeded, "no time left to execute it"), 0};
  what.deadline_ms = static_cast<uint32_t>(std::min<int64_t>(left, UINT32_MAX));
  if (job.stop.cancelled()) return {Stopped(), 0};

  const TimePoint quiet = job.deadline + QuiesceMaxOf(facts);
  auto end = (*client)->Execute(what, quiet, job.stop, *job.watcher);
  if (end) return AsToldHere(*std::move(end), job.peer, job.stop.cancelled());
  // Stopped, or the connection failed: the peer alone knows how far it is.
  // By then it stops: at its deadline, when it notices that nobody listens, or was told so.
  TimePoint stops = std::min(job.deadline, Clock::now() + options_.silence_max);
  Error why = std::move(end).error().WithContext("peer '" + job.peer + "'");
  const TimePoint patience = Clock::now() + kPendingMax;
  auto told = (*client)->EndExecution(what.id, Clock::now() + wire::kExecutionEndCall);
  while (told && told->pending && Clock::now() < patience) {
    stops = std::min(stops, Clock::now());
    told = (*client)->EndExecution(what.id, Clock::now() + wire::kExecutionEndCall);
  }
  if (told && !told->pending) {
    if (!told->error || job.stop.cancelled()) {
      return AsToldHere(*std::move(told), job.peer, job.stop.cancelled());
    }
    return {std::move(why), told->bytes};
  }
  log::Warning("a peer does not say whether a transfer that it executes is quiet, and is cut off",
               {{"peer", job.peer}, {"error", why}});
  // The peer waits likewise for the end of the session that this holds, if it has been cut off.
  client->reset();
  why.code = ErrorCode::kPeerLost;
  const bool quiet_now = CutOff(facts, what.operation, stops + QuiesceMaxOf(facts));
  if (!quiet_now) why.message += "; its last bytes may still move";
  return {std::move(why), 0};
}

milliseconds ExecutionClient::QuiesceMaxOf(const PeerClient::Facts& peer) const {
  return peer.quiesce_max ? *peer.quiesce_max + wire::kExecutionMargin : options_.quiesce_max;
}

bool ExecutionClient::CutOff(const PeerClient::Facts& peer, wire::Operation operation,
                             TimePoint quiet) {
  const auto sessions = sessions_.EndSessionsOf(peer.owner.generation, peer.verified_identity);
  while (!sessions_.AwaitUnmapped(sessions, Clock::now() + kCutOffRound)) {
    const MutexLock lock(mutex_);
    if (closed_) return false;
  }
  if (operation == wire::Operation::kRead) return true;
  // What it has read from here it may still store in its own memory.
  MutexLock lock(mutex_);
  while (!closed_ && Clock::now() < quiet) changed_.WaitUntil(lock, quiet);
  return Clock::now() >= quiet;
}

}  // namespace gantry::peer
