// The holds of this sidecar's workloads, and the transfers that read them. A hold keeps nobody from
// writing: it is its owner's promise, and this table says until when it stands. Thread-safe;
// nothing here waits.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lib/base/clock.h"
#include "lib/base/mutex.h"
#include "lib/base/result.h"
#include "lib/wire/hold.h"
#include "sidecar/engine/block_runs.h"
#include "sidecar/engine/event_log.h"
#include "sidecar/engine/hold_info.h"
#include "sidecar/metrics/metrics.h"
#include "sidecar/registry/buffer_registry.h"

namespace gantry::engine {

struct HoldLimits {
  size_t holds_max = 16'384;    // of all workloads
  size_t runs_max = 4'194'304;  // of neighbouring blocks, in all holds together
  size_t uses_max = 16'384;     // that have not ended
  size_t ended_kept_max = 16'384;
  milliseconds ttl_max{3'600'000};
  milliseconds use_max{3'700'000};  // a transfer's longest deadline, and until it is quiet
};

class HoldTable {
 public:
  using Now = std::function<TimePoint()>;
  // The references outlive it.
  HoldTable(
      const registry::BufferRegistry& registry, EventLog& events, metrics::Metrics& metrics,
      HoldLimits limits = {}, Now now = [] { return Clock::now(); });

  // The same content again renews it, another one is kConflict; one that is over begins anew.
  // `generation` is that of the workload. Errors name the field.
  Result<HoldInfo> Put(const std::string& id, const wire::HoldRequest& request, uint64_t generation)
      EXCLUDES(mutex_);
  // From now on for `ttl_ms`. kLeaseExpired when it is over.
  Result<HoldInfo> Extend(std::string_view workload, std::string_view id, uint64_t ttl_ms)
      EXCLUDES(mutex_);
  // Ends it, also under those who read. One that is over already is no error.
  Status Release(std::string_view workload, std::string_view id) EXCLUDES(mutex_);
  Result<HoldInfo> Get(std::string_view workload, std::string_view id) const EXCLUDES(mutex_);
  // Those that stand, by workload and id; empty workload: all.
  std::vector<HoldInfo> List(std::string_view workload, size_t limit) const EXCLUDES(mutex_);
  size_t size() const EXCLUDES(mutex_);

  // A transfer is about to read. kLeaseExpired when the hold is over, kNotFound when there was
  // none, kOutOfRange for blocks that it does not cover, kStaleGeneration for buffers that were
  // registered anew. While the use lasts, for_ms at most, the hold does not expire. `session`:
  // whatever LoseUses will be told of; empty for this sidecar's own.
  Result<uint64_t> Use(const wire::HoldUse& use, const std::string& session) EXCLUDES(mutex_);
  // Success counts one consumer, once. An unknown use is none of ours, or was over before.
  void EndUse(uint64_t use, bool succeeded) EXCLUDES(mutex_);
  // Those who read are gone. If they come back, what they have read counts still.
  void LoseUses(const std::string& session) EXCLUDES(mutex_);

  // The workload ended: so did its promises, without an event.
  void EndWorkload(std::string_view workload, uint64_t generation) EXCLUDES(mutex_);
  // Ends what is over by now. To be called regularly: nothing is used in between that is over.
  void Tick() EXCLUDES(mutex_);

 private:
  using Key = std::pair<std::string, std::string>;  // workload, id
  struct Cover {
    uint64_t generation = 0;
    // One for each group that names the buffer; null: all blocks.
    std::vector<std::shared_ptr<const BlockRuns>> blocks;
  };
  using Covers = std::map<std::string, Cover, std::less<>>;  // by buffer
  struct Hold {
    HoldInfo info;
    uint64_t generation = 0;  // of the workload
    uint64_t content = 0;     // hash of what was asked for
    TimePoint expires;
    Covers covers;
    size_t runs = 0;
    std::set<uint64_t> uses;  // of those who read; the lost ones are not among them
  };
  struct Reading {
    Key hold;
    uint64_t generation = 0;  // of the hold's workload
    std::string session;
    TimePoint until;
  };

  Result<Covers> CoversOf(const wire::HoldRequest& request, size_t* runs) const;
  Result<milliseconds> CheckTtl(uint64_t ttl_ms) const;
  static Status CheckPart(const wire::HoldUsePart& part, const Hold& hold);
  static bool IsConsumed(const Hold& hold);
  static HoldInfo Snapshot(const Hold& hold);
  void SetExpiry(Hold* hold, milliseconds ttl) REQUIRES(mutex_);
  Result<Hold*> Find(std::string_view workload, std::string_view id) REQUIRES(mutex_);
  // Ends those that are over at `now`.
  void EndDue(TimePoint now) REQUIRES(mutex_);
  void EndIfOver(const Key& key, TimePoint now) REQUIRES(mutex_);
  // The hold that it is of, if that still stands; it does not read it any more.
  Hold* Withdraw(uint64_t number, const Reading& reading) REQUIRES(mutex_);
  void End(const Key& key, HoldState outcome) REQUIRES(mutex_);
  void Forget(const Key& key) REQUIRES(mutex_);

  const registry::BufferRegistry& registry_;
  EventLog& events_;
  metrics::Metrics& metrics_;
  const HoldLimits limits_;
  const Now now_;

  mutable Mutex mutex_;
  std::map<Key, Hold> holds_ GUARDED_BY(mutex_);  // that stand
  size_t runs_ GUARDED_BY(mutex_) = 0;
  std::set<std::pair<TimePoint, Key>> expiries_ GUARDED_BY(mutex_);  // of holds, until they pass
  std::map<uint64_t, Reading> uses_ GUARDED_BY(mutex_);
  std::set<std::pair<TimePoint, uint64_t>> use_ends_ GUARDED_BY(mutex_);
  std::map<Key, HoldInfo> ended_ GUARDED_BY(mutex_);
  std::deque<Key> ended_order_ GUARDED_BY(mutex_);
};

}  // namespace gantry::engine
