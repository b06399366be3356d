// The transfers that are known: those that run, and finished ones for a while. They are found by
// token, by workload and id, and by the time of their timers. Owned by the engine's driver.
#pragma once

#include <absl/container/btree_map.h>
#include <absl/container/btree_set.h>
#include <absl/container/flat_hash_map.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sidecar/transfer/engine_options.h"
#include "sidecar/transfer/transfer.h"

namespace gantry::engine {

class TransferTable {
 public:
  using Key = std::pair<std::string, std::string>;  // workload, id
  using Transfers = absl::btree_map<uint64_t, std::unique_ptr<Transfer>>;
  using Match = std::function<bool(const Transfer&)>;

  // `options` outlives the table.
  explicit TransferTable(const EngineOptions& options) : options_(options) {}

  // The new transfer is the one that its workload and id name from now on.
  Transfer* Add(Admitted&& admitted, TimePoint now);
  // Null: there is none.
  Transfer* Find(const Key& key) const;
  Transfer* Find(uint64_t token) const;
  // By token: in order of age.
  const Transfers& all() const { return transfers_; }
  // The statuses of the newest first, without failed items; empty workload: all.
  std::vector<TransferStatus> List(std::string_view workload, bool active_only, size_t limit) const;
  EngineTotals Totals() const;
  // Transfers that are not terminal.
  size_t active() const { return transfers_.size() - finished_.size(); }

  // Replaces the timer that the transfer has.
  void SetTimer(Transfer* transfer, TimePoint when);
  void ClearTimer(Transfer* transfer);
  // max: there is none.
  TimePoint next_timer() const;
  // A transfer whose timer is due, without its timer; null: there is none.
  Transfer* TakeDue(TimePoint now);

  // REQUIRES a terminal transfer. It is kept for EngineOptions::finished_ttl at most.
  void KeepFinished(const Transfer& transfer, TimePoint now);
  void ForgetOld(TimePoint now);
  // The ids of the terminal transfers that `match` picks can be used again.
  void ForgetIds(const Match& match);

 private:
  void ForgetId(const Transfer& transfer);

  const EngineOptions& options_;
  Transfers transfers_;
  absl::flat_hash_map<Key, uint64_t> tokens_;
  absl::btree_set<std::pair<TimePoint, uint64_t>> timers_;
  std::deque<std::pair<TimePoint, uint64_t>> finished_;  // when, token
  size_t finished_items_ = 0;                            // failed items that are kept
  uint64_t next_token_ = 1;
};

}  // namespace gantry::engine
