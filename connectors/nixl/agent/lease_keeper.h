// Keeps an agent's lease: a thread listens for events, and opens another lease when one is lost.
// Thread-safe.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "connectors/nixl/agent/lease.h"
#include "lib/base/mutex.h"

namespace gantry::nixl {

class LeaseKeeper {
 public:
  // All are called by the keeper's thread. `renewed`: with each lease but the first, before
  // others get it. `repair`: now and then, tries again what failed then, and says whether all is
  // well. `has_room`: events are to be waited for. `heard`: with each page of events, as JSON, of
  // that lease.
  struct Listener {
    std::function<bool(const std::shared_ptr<Lease>&)> repair;
    std::function<bool()> has_room;
    std::function<void(const std::shared_ptr<Lease>&)> renewed;
    std::function<void(const std::shared_ptr<Lease>&, const std::string&)> heard;
  };

  // Fails where the first lease is not to be had.
  static Result<std::unique_ptr<LeaseKeeper>> Start(PluginConfig config, std::string workload,
                                                    Listener listener);
  // Ends lease and thread.
  ~LeaseKeeper();
  LeaseKeeper(const LeaseKeeper&) = delete;
  LeaseKeeper& operator=(const LeaseKeeper&) = delete;

  // Null while there is none.
  std::shared_ptr<Lease> lease() const;

 private:
  LeaseKeeper(PluginConfig config, std::string workload, Listener listener);

  void Run(const std::stop_token& stop);
  void Step(const std::stop_token& stop);
  // Waits for events and passes them on, unless there is no room for them.
  void Listen(const std::shared_ptr<Lease>& lease, const std::stop_token& stop);
  void Reopen(const std::stop_token& stop);
  void Lose(Lease& lease, const Error& why);
  void Pause(milliseconds time, const std::stop_token& stop);

  const PluginConfig config_;
  const std::string workload_;
  const Listener listener_;
  std::atomic<bool> has_filter_{true};  // the sidecar can leave out events of transfers
  mutable Mutex mutex_;
  Condition stopped_;  // NOLINT: a condition guards nothing
  std::shared_ptr<Lease> lease_ GUARDED_BY(mutex_);
  std::optional<uint64_t> cursor_ GUARDED_BY(mutex_);  // nothing: from now on
  milliseconds pause_ GUARDED_BY(mutex_){0};
  std::jthread thread_;
};

}  // namespace gantry::nixl
