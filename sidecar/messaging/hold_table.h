// The holds of this sidecar's workloads, and the transfers that read them. A hold prevents no
// writes: it is its owner's promise, and this table tracks how long it lasts. Thread-safe; never
// blocks.
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
  size_t holds_max = 16'384;    // over all workloads
  size_t size_max = 1'048'576;  // over all covers
  size_t uses_max = 16'384;     // reads that have not ended
  size_t ended_kept_max = 16'384;
  milliseconds ttl_max{3'600'000};
  milliseconds use_max{3'700'000};  // the default longest deadline, plus time to become quiet
};

class HoldTable {
 public:
  using Now = std::function<TimePoint()>;
  // The references outlive the table.
  HoldTable(
      const registry::WorkloadTable& workloads, const registry::BufferRegistry& registry,
      EventLog& events, metrics::Metrics& metrics, HoldLimits limits = {},
      Now now = [] { return Clock::now(); });

  // Equal content renews the hold; other content is kConflict, and so is a hold that is over but
  // still being read. An id whose hold has ended starts a new one. `generation` is the workload's.
  // Errors name the field.
  Result<HoldInfo> Put(const std::string& id, const wire::HoldRequest& request, uint64_t generation)
      EXCLUDES(mutex_);
  // Sets the remaining time to `ttl_ms` from now. kLeaseExpired when the hold is over.
  Result<HoldInfo> Extend(std::string_view workload, uint64_t generation, std::string_view id,
                          uint64_t ttl_ms) EXCLUDES(mutex_);
  // No new reader may start; the hold ends with its last reader. Releasing an ended hold is no
  // error.
  Result<HoldInfo> Release(std::string_view workload, std::string_view id) EXCLUDES(mutex_);
  Result<HoldInfo> Get(std::string_view workload, std::string_view id) EXCLUDES(mutex_);
  // Returns holds that have not ended, by workload and id; empty workload: all.
  std::vector<HoldInfo> List(std::string_view workload, size_t limit) EXCLUDES(mutex_);
  size_t size() const EXCLUDES(mutex_);

  // Starts a transfer's use of a hold and returns its number. kLeaseExpired: the hold is over.
  // kNotFound: there was none. kOutOfRange: it does not cover the blocks. kStaleGeneration: buffers
  // were registered anew. The hold does not end during the use, for at most for_ms. `session` is
  // the key for LoseUses; empty for this sidecar's own.
  Result<uint64_t> Use(const wire::HoldUse& use, const std::string& session) EXCLUDES(mutex_);
  // A success counts once towards expected_consumers. Ignores a use that is unknown or over.
  void EndUse(uint64_t use, bool succeeded) EXCLUDES(mutex_);
  // The readers of a session are gone: their uses keep no hold any longer. A later EndUse still
  // counts.
  void LoseUses(const std::string& session) EXCLUDES(mutex_);

  // Ends the holds of an ended workload, without events.
  void EndWorkload(std::string_view workload, uint64_t generation) EXCLUDES(mutex_);
  // Ends everything that is over. Call regularly; the other calls never use an expired hold.
  void Tick() EXCLUDES(mutex_);

 private:
  using Key = std::pair<std::string, std::string>;  // workload, id
  struct Hold {
    HoldInfo info;
    uint64_t generation = 0;  // the workload's
    uint64_t content = 0;     // hash of the request
    TimePoint expires;
    std::shared_ptr<const HoldCover> cover;
    uint64_t number = 0;  // unique per hold; ids are reused
    bool released = false;
    std::set<uint64_t> uses;  // current readers; lost ones are not included
  };
  struct Ended {
    HoldInfo info;
    uint64_t number = 0;  // the hold's
  };
  struct Reading {
    Key hold;
    uint64_t number = 0;  // the hold's
    std::string session;
    uint64_t consumers = 1;  // number of consumers that it counts for
    TimePoint until;
  };

  Result<milliseconds> CheckTtl(uint64_t ttl_ms) const;
  // Returns how the hold ends once it has no readers; nothing while readers may still start.
  static std::optional<HoldState> OutcomeOf(const Hold& hold, TimePoint now);
  HoldInfo Snapshot(const Hold& hold) const;
  void SetExpiry(Hold* hold, milliseconds ttl) REQUIRES(mutex_);
  // Finds a hold that may get new readers.
  Result<Hold*> FindOpen(std::string_view workload, std::string_view id) REQUIRES(mutex_);
  // Fails when a limit is reached.
  Result<Hold*> Make(const Key& key, size_t size) REQUIRES(mutex_);
  Result<uint64_t> Begin(Hold* hold, const wire::HoldUse& use, const std::string& session)
      REQUIRES(mutex_);
  // Ends the holds and uses that are over at `now`.
  void EndDue(TimePoint now) REQUIRES(mutex_);
  void EndIfOver(const Key& key, TimePoint now) REQUIRES(mutex_);
  // Removes the use from its hold. Returns the hold if it still exists, else null.
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
  size_t size_ GUARDED_BY(mutex_) = 0;                               // total of their covers
  std::set<std::pair<TimePoint, Key>> expiries_ GUARDED_BY(mutex_);  // holds not yet expired
  std::map<uint64_t, Reading> uses_ GUARDED_BY(mutex_);
  std::set<std::pair<TimePoint, uint64_t>> use_ends_ GUARDED_BY(mutex_);
  std::map<Key, Ended> ended_ GUARDED_BY(mutex_);  // the latest for each id
  // Every end, including ids that have ended again.
  std::deque<std::pair<Key, uint64_t>> ended_order_ GUARDED_BY(mutex_);
};

}  // namespace gantry::engine
