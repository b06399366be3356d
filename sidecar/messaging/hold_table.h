// The holds of this sidecar's workloads, and the transfers that read them. A hold keeps nobody from
// writing: it is its owner's promise, and this table says until when it stands. Thread-safe;
// nothing here waits.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lib/base/clock.h"
#include "lib/base/mutex.h"
#include "lib/base/result.h"
#include "lib/wire/hold.h"
#include "sidecar/messaging/event_log.h"
#include "sidecar/messaging/hold_cover.h"
#include "sidecar/messaging/hold_info.h"
#include "sidecar/metrics/metrics.h"
#include "sidecar/registry/buffer_registry.h"
#include "sidecar/registry/workload_table.h"

namespace gantry::engine {

struct HoldLimits {
  size_t holds_max = 16'384;    // of all workloads
  size_t size_max = 1'048'576;  // of all covers together
  size_t uses_max = 16'384;     // that have not ended
  size_t ended_kept_max = 16'384;
  milliseconds ttl_max{3'600'000};
  milliseconds use_max{3'700'000};  // the longest deadline unless set, and until it is quiet
};

class HoldTable {
 public:
  using Now = std::function<TimePoint()>;
  // The references outlive it.
  HoldTable(
      const registry::WorkloadTable& workloads, const registry::BufferRegistry& registry,
      EventLog& events, metrics::Metrics& metrics, HoldLimits limits = {},
      Now now = [] { return Clock::now(); });

  // The same content again renews it, another one is kConflict; one that has ended begins anew.
  // `generation` is that of the workload. Errors name the field.
  Result<HoldInfo> Put(const std::string& id, const wire::HoldRequest& request, uint64_t generation)
      EXCLUDES(mutex_);
  // From now on for `ttl_ms`. kLeaseExpired when it is over.
  Result<HoldInfo> Extend(std::string_view workload, uint64_t generation, std::string_view id,
                          uint64_t ttl_ms) EXCLUDES(mutex_);
  // Nobody else begins to read it; it ends when those who do have ended. One that is over already
  // is no error.
  Result<HoldInfo> Release(std::string_view workload, std::string_view id) EXCLUDES(mutex_);
  Result<HoldInfo> Get(std::string_view workload, std::string_view id) EXCLUDES(mutex_);
  // Those that have not ended, by workload and id; empty workload: all.
  std::vector<HoldInfo> List(std::string_view workload, size_t limit) EXCLUDES(mutex_);
  size_t size() const EXCLUDES(mutex_);

  // A transfer is about to read. kLeaseExpired when the hold is over, kNotFound when there was
  // none, kOutOfRange for blocks that it does not cover, kStaleGeneration for buffers that were
  // registered anew. While the use lasts, for_ms at most, the hold does not end. `session`:
  // whatever LoseUses will be told of; empty for this sidecar's own.
  Result<uint64_t> Use(const wire::HoldUse& use, const std::string& session) EXCLUDES(mutex_);
  // Success counts, once. An unknown use is none of ours, or was over before.
  void EndUse(uint64_t use, bool succeeded) EXCLUDES(mutex_);
  // Those who read are gone. If they come back, what they have read counts still.
  void LoseUses(const std::string& session) EXCLUDES(mutex_);

  // The workload ended: so did its promises, without an event.
  void EndWorkload(std::string_view workload, uint64_t generation) EXCLUDES(mutex_);
  // Ends what is over by now. To be called regularly: nothing is used in between that is over.
  void Tick() EXCLUDES(mutex_);

 private:
  using Key = std::pair<std::string, std::string>;  // workload, id
  struct Hold {
    HoldInfo info;
    uint64_t generation = 0;  // of the workload
    uint64_t content = 0;     // hash of what was asked for
    TimePoint expires;
    std::shared_ptr<const HoldCover> cover;
    uint64_t number = 0;  // of this hold, which another may follow under its id
    bool released = false;
    std::set<uint64_t> uses;  // of those who read; the lost ones are not among them
  };
  struct Ended {
    HoldInfo info;
    uint64_t number = 0;  // the hold's
  };
  struct Reading {
    Key hold;
    uint64_t number = 0;  // the hold's
    std::string session;
    uint64_t consumers = 1;  // as how many it counts
    TimePoint until;
  };

  Result<milliseconds> CheckTtl(uint64_t ttl_ms) const;
  // How it ends when nobody reads it any more; nothing while others may begin to.
  static std::optional<HoldState> OutcomeOf(const Hold& hold, TimePoint now);
  HoldInfo Snapshot(const Hold& hold) const;
  void SetExpiry(Hold* hold, milliseconds ttl) REQUIRES(mutex_);
  // One that others may begin to read.
  Result<Hold*> FindOpen(std::string_view workload, std::string_view id) REQUIRES(mutex_);
  // If there is room.
  Result<Hold*> Make(const Key& key, size_t size) REQUIRES(mutex_);
  Result<uint64_t> Begin(Hold* hold, const wire::HoldUse& use, const std::string& session)
      REQUIRES(mutex_);
  // Ends those that are over at `now`.
  void EndDue(TimePoint now) REQUIRES(mutex_);
  void EndIfOver(const Key& key, TimePoint now) REQUIRES(mutex_);
  // The hold that it is of, if that still stands; it does not read it any more.
  Hold* Withdraw(uint64_t number, const Reading& reading) REQUIRES(mutex_);
  void End(const Key& key, HoldState outcome) REQUIRES(mutex_);
  void Forget(const Key& key) REQUIRES(mutex_);

  const registry::WorkloadTable& workloads_;
  const registry::BufferRegistry& registry_;
  EventLog& events_;
  metrics::Metrics& metrics_;
  const HoldLimits limits_;
  const Now now_;

  mutable Mutex mutex_;
  std::map<Key, Hold> holds_ GUARDED_BY(mutex_);  // that have not ended
  uint64_t numbers_ GUARDED_BY(mutex_) = 0;
  size_t size_ GUARDED_BY(mutex_) = 0;                               // of their covers
  std::set<std::pair<TimePoint, Key>> expiries_ GUARDED_BY(mutex_);  // of holds, until they pass
  std::map<uint64_t, Reading> uses_ GUARDED_BY(mutex_);
  std::set<std::pair<TimePoint, uint64_t>> use_ends_ GUARDED_BY(mutex_);
  std::map<Key, Ended> ended_ GUARDED_BY(mutex_);  // the last of each id
  // Every end, also of ids that have ended again since.
  std::deque<std::pair<Key, uint64_t>> ended_order_ GUARDED_BY(mutex_);
};

}  // namespace gantry::engine
