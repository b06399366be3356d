// Lets peers execute transfers, each on its own thread, and determines when they are quiet. Either
// the peer reports it, or it loses its access to this sidecar's memory. Thread-safe.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "lib/base/mutex.h"
#include "lib/wire/session_times.h"
#include "sidecar/peer/client/peer_client.h"
#include "sidecar/peer/identity/initiator_sessions.h"
#include "sidecar/peer/link/peer_directory.h"
#include "sidecar/remote/peer_executor.h"

namespace gantry::peer {

struct ExecutionClientOptions {
  size_t running_max = 32;          // others wait
  size_t running_per_peer_max = 8;  // so that a peer that does not answer leaves room
  // The assumed time for a peer to become quiet once it knows that it should, if it does not state
  // it.
  milliseconds quiesce_max{10'000};
  // A peer with a longer time is not asked, since its transfers would be held that long.
  milliseconds quiesce_accepted_max{60'000};
  milliseconds silence_max = wire::kSilenceMax;  // until a peer notices that this sidecar is gone
};

class ExecutionClient final : public engine::PeerExecutor {
 public:
  // Both references outlive it.
  ExecutionClient(PeerDirectory& directory, InitiatorSessions& sessions,
                  ExecutionClientOptions options = {});
  ~ExecutionClient() override;  // Close()

  // Refuses new executions, stops running ones and waits until they are quiet. Call it before the
  // peers' links end, which would lose their reports. Idempotent.
  void Close() EXCLUDES(mutex_);

  Status CanExecute(const std::string& peer) const override;
  std::unique_ptr<Execution> Execute(const std::string& peer, int priority,
                                     std::function<wire::PeerExecution()> make, TimePoint deadline,
                                     std::shared_ptr<Watcher> watcher) override EXCLUDES(mutex_);

 private:
  struct Job;
  class Handle;

  void StopJob(const std::shared_ptr<Job>& job) EXCLUDES(mutex_);
  void RunJobs() EXCLUDES(mutex_);
  std::shared_ptr<Job> TakeJob() EXCLUDES(mutex_);
  std::optional<Error> StartThread(const std::string& peer) REQUIRES(mutex_);
  Result<std::shared_ptr<PeerClient>> AwaitSessions(const Job& job);
  wire::PeerExecutionEnd RunToEnd(Job& job);
  // The peer's stated time to become quiet, plus a margin.
  milliseconds QuiesceMaxOf(const PeerClient::Facts& peer) const;
  // The peer did not confirm that it is quiet: waits until it has lost its access. Where it writes
  // its own memory, waits also until `quiet`. Returns false when this sidecar stops first.
  bool CutOff(const PeerClient::Facts& peer, wire::Operation operation, TimePoint quiet);

  PeerDirectory& directory_;
  InitiatorSessions& sessions_;
  const ExecutionClientOptions options_;

  mutable Mutex mutex_;
  Condition changed_;
  std::deque<std::shared_ptr<Job>> waiting_ GUARDED_BY(mutex_);  // next first
  std::vector<std::shared_ptr<Job>> running_ GUARDED_BY(mutex_);
  std::map<std::string, size_t> running_at_ GUARDED_BY(mutex_);  // by peer
  std::map<std::jthread::id, std::jthread> threads_ GUARDED_BY(mutex_);
  std::vector<std::jthread> ended_ GUARDED_BY(mutex_);  // to be joined
  bool closed_ GUARDED_BY(mutex_) = false;
};

}  // namespace gantry::peer
