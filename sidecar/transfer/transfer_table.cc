#include "sidecar/transfer/transfer_table.h"

namespace gantry::engine {
namespace {

// Failed items in the statuses that are kept, all together.
constexpr size_t kFinishedItemsMax = 4'000'000;

size_t FailedItemsOf(const Transfer& transfer) {
  const auto& items = transfer.admitted.status.failed_items;
  return items == nullptr ? 0 : items->size();
}

}  // namespace

Transfer* TransferTable::Add(Admitted&& admitted, TimePoint now) {
  const uint64_t token = next_token_++;
  Transfer* const transfer =
      transfers_.emplace(token, std::make_unique<Transfer>(std::move(admitted), token, now))
          .first->second.get();
  const TransferStatus& status = transfer->admitted.status;
  tokens_.insert_or_assign(Key(status.workload, status.id), token);
  return transfer;
}

Transfer* TransferTable::Find(const Key& key) const {
  const auto found = tokens_.find(key);
  return found == tokens_.end() ? nullptr : transfers_.at(found->second).get();
}

Transfer* TransferTable::Find(uint64_t token) const {
  const auto found = transfers_.find(token);
  return found == transfers_.end() ? nullptr : found->second.get();
}

std::vector<TransferStatus> TransferTable::List(std::string_view workload, bool active_only,
                                                size_t limit) const {
  std::vector<TransferStatus> list;
  const TimePoint now = Clock::now();
  for (auto entry = transfers_.rbegin(); entry != transfers_.rend() && list.size() < limit;
       ++entry) {
    const Transfer& transfer = *entry->second;
    if (!workload.empty() && transfer.admitted.status.workload != workload) continue;
    if (active_only && transfer.is_terminal()) continue;
    list.push_back(transfer.Snapshot(now));
    list.back().failed_items = nullptr;
  }
  return list;
}

EngineTotals TransferTable::Totals() const {
  EngineTotals totals;
  for (const auto& [token, transfer] : transfers_) {
    if (transfer->is_terminal()) continue;
    const auto& operation = transfer->operation;  // null: its bytes moved, or wait for a retry
    const bool posted = operation == nullptr || operation->progress().first_posted.has_value();
    ++(posted ? totals.running : totals.queued);
    if (operation != nullptr) totals.bytes_inflight += transfer->admitted.plan->bytes;
  }
  return totals;
}

void TransferTable::SetTimer(Transfer* transfer, TimePoint when) {
  ClearTimer(transfer);
  transfer->timer = when;
  timers_.insert({when, transfer->token});
}

void TransferTable::ClearTimer(Transfer* transfer) {
  if (transfer->timer) timers_.erase({*transfer->timer, transfer->token});
  transfer->timer.reset();
}

TimePoint TransferTable::next_timer() const {
  return timers_.empty() ? TimePoint::max() : timers_.begin()->first;
}

Transfer* TransferTable::TakeDue(TimePoint now) {
  if (next_timer() > now || timers_.empty()) return nullptr;
  Transfer* const transfer = transfers_.at(timers_.begin()->second).get();
  ClearTimer(transfer);
  return transfer;
}

void TransferTable::KeepFinished(const Transfer& transfer, TimePoint now) {
  finished_items_ += FailedItemsOf(transfer);
  finished_.emplace_back(now, transfer.token);
}

void TransferTable::ForgetOld(TimePoint now) {
  while (!finished_.empty() &&
         (finished_.size() > options_.finished_kept_max || finished_items_ > kFinishedItemsMax ||
          finished_.front().first + options_.finished_ttl < now)) {
    const Transfer& oldest = *transfers_.at(finished_.front().second);
    finished_items_ -= FailedItemsOf(oldest);
    ForgetId(oldest);
    transfers_.erase(oldest.token);
    finished_.pop_front();
  }
}

void TransferTable::ForgetIds(const Match& match) {
  for (const auto& [token, transfer] : transfers_) {
    if (transfer->is_terminal() && match(*transfer)) ForgetId(*transfer);
  }
}

void TransferTable::ForgetId(const Transfer& transfer) {
  const TransferStatus& status = transfer.admitted.status;
  const auto found = tokens_.find(Key(status.workload, status.id));
  if (found != tokens_.end() && found->second == transfer.token) tokens_.erase(found);
}

}  // namespace gantry::engine
