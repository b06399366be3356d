#include "sidecar/messaging/hold_table.h"

#include <algorithm>

#include "lib/base/random_id.h"

namespace gantry::engine {
namespace {

int64_t UnixMillis(TimePoint time, TimePoint now) {
  const auto wall = std::chrono::system_clock::now().time_since_epoch() + (time - now);
  return std::chrono::duration_cast<milliseconds>(wall).count();
}

uint64_t ContentOf(const wire::HoldRequest& request) {
  uint64_t content = 0xcbf29ce484222325ULL;
  const auto add = [&content](uint64_t value) {
    content = (content ^ value) * 0x100000001b3ULL;
    content ^= content >> 29;
  };
  for (const wire::HoldGroup& group : request.groups) {
    add(group.buffers.size());
    for (const std::string& buffer : group.buffers) add(std::hash<std::string>{}(buffer));
    add(group.blocks ? group.blocks->size() + 1 : 0);
    if (group.blocks) std::for_each(group.blocks->begin(), group.blocks->end(), add);
  }
  add(request.expected_consumers.value_or(0));
  return content;
}

std::string NameOfHold(const HoldInfo& info) {
  return "hold '" + info.id + "' of workload '" + info.workload + "'";
}

tl::unexpected<Error> IsOver(const HoldInfo& info, HoldState outcome) {
  return Fail(ErrorCode::kLeaseExpired,
              NameOfHold(info) + " is over: " + std::string(NameOf(outcome)),
              "its blocks may hold something else by now: compute them, or ask the owner again");
}

tl::unexpected<Error> NoHold(std::string_view workload, std::string_view id) {
  return Fail(ErrorCode::kNotFound,
              "workload '" + std::string(workload) + "' has no hold '" + std::string(id) + "'",
              "it ended long ago, or with an earlier life of its owner, or was never put");
}

}  // namespace

HoldTable::HoldTable(const registry::WorkloadTable& workloads,
                     const registry::BufferRegistry& registry, EventLog& events,
                     metrics::Metrics& metrics, HoldLimits limits, Now now)
    : workloads_(workloads),
      registry_(registry),
      events_(events),
      metrics_(metrics),
      limits_(limits),
      now_(std::move(now)) {}

Result<milliseconds> HoldTable::CheckTtl(uint64_t ttl_ms) const {
  const auto most = static_cast<uint64_t>(limits_.ttl_max.count());
  if (ttl_ms >= 1 && ttl_ms <= most) return milliseconds(static_cast<int64_t>(ttl_ms));
  return Fail(ErrorCode::kInvalidArgument, "ttl_ms is not within 1 and " + std::to_string(most), {},
              "/ttl_ms");
}

Result<HoldInfo> HoldTable::Put(const std::string& id, const wire::HoldRequest& request,
                                uint64_t generation) {
  RETURN_IF_ERROR(wire::CheckHoldId(id, "/id"));
  ASSIGN_OR_RETURN(const milliseconds ttl, CheckTtl(request.ttl_ms));
  ASSIGN_OR_RETURN(HoldCover read, HoldCover::Of(registry_, request));
  auto cover = std::make_shared<const HoldCover>(std::move(read));
  const uint64_t content = ContentOf(request);
  const Key key(request.workload, id);
  const MutexLock lock(mutex_);
  // Under the lock: EndWorkload follows if it ends now.
  if (!workloads_.IsCurrent(request.workload, generation)) {
    return Fail(ErrorCode::kNotFound, "workload '" + request.workload + "' has ended", {},
                "/workload");
  }
  const TimePoint now = now_();
  EndDue(now);
  auto found = holds_.find(key);
  if (found != holds_.end() && found->second.generation != generation) {
    Forget(key);
    found = holds_.end();
  }
  if (found == holds_.end()) {
    ASSIGN_OR_RETURN(Hold * made, Make(key, cover->size()));
    made->info.expected_consumers = request.expected_consumers;
    made->generation = generation;
    made->content = content;
    found = holds_.find(key);
  } else if (OutcomeOf(found->second, now)) {
    return Fail(ErrorCode::kConflict,
                NameOfHold(found->second.info) + " is over, but " +
                    std::to_string(found->second.uses.size()) + " transfers read it still",
                "use a new id, or wait for the event that says how it ended", "/id");
  } else if (found->second.content != content) {
    return Fail(ErrorCode::kConflict,
                NameOfHold(found->second.info) + " stands with another content",
                "use a new id, or release it first", "/id");
  }
  // Also of one that stands: its buffers may have been registered anew.
  found->second.cover = std::move(cover);
  SetExpiry(&found->second, ttl);
  return Snapshot(found->second);
}

Result<HoldTable::Hold*> HoldTable::Make(const Key& key, size_t size) {
  if (holds_.size() >= limits_.holds_max || size > limits_.size_max - size_) {
    return Fail(ErrorCode::kResourceExhausted,
                "there are " + std::to_string(holds_.size()) + " holds, which name " +
                    std::to_string(size_) + " buffers and runs of blocks, and this one " +
                    std::to_string(size) + "; the most are " + std::to_string(limits_.holds_max) +
                    " and " + std::to_string(limits_.size_max),
                "release those that are not needed, or give them less time");
  }
  Hold& made = holds_[key];
  made.info.workload = key.first;
  made.info.id = key.second;
  made.number = ++numbers_;
  size_ += size;
  ended_.erase(key);
  return &made;
}

void HoldTable::SetExpiry(Hold* hold, milliseconds ttl) {
  const TimePoint now = now_();
  const Key key(hold->info.workload, hold->info.id);
  expiries_.erase({hold->expires, key});
  hold->expires = now + ttl;
  expiries_.insert({hold->expires, key});
  hold->info.expires_unix_ms = UnixMillis(hold->expires, now);
}

Result<HoldInfo> HoldTable::Extend(std::string_view workload, uint64_t generation,
                                   std::string_view id, uint64_t ttl_ms) {
  ASSIGN_OR_RETURN(const milliseconds ttl, CheckTtl(ttl_ms));
  const MutexLock lock(mutex_);
  ASSIGN_OR_RETURN(Hold * hold, FindOpen(workload, id));
  if (hold->generation != generation) return NoHold(workload, id);
  SetExpiry(hold, ttl);
  return Snapshot(*hold);
}

Result<HoldInfo> HoldTable::Release(std::string_view workload, std::string_view id) {
  const Key key(workload, id);
  const MutexLock lock(mutex_);
  const TimePoint now = now_();
  EndDue(now);
  if (const auto found = holds_.find(key); found != holds_.end()) {
    Hold& hold = found->second;
    hold.released = hold.released || !OutcomeOf(hold, now);
    if (!hold.uses.empty()) return Snapshot(hold);
    EndIfOver(key, now);
  }
  if (const auto ended = ended_.find(key); ended != ended_.end()) return ended->second.info;
  return NoHold(workload, id);
}

Result<HoldInfo> HoldTable::Get(std::string_view workload, std::string_view id) {
  const Key key(workload, id);
  const MutexLock lock(mutex_);
  EndDue(now_());
  if (const auto found = holds_.find(key); found != holds_.end()) return Snapshot(found->second);
  if (const auto ended = ended_.find(key); ended != ended_.end()) return ended->second.info;
  return NoHold(workload, id);
}

std::vector<HoldInfo> HoldTable::List(std::string_view workload, size_t limit) {
  std::vector<HoldInfo> list;
  const MutexLock lock(mutex_);
  EndDue(now_());
  auto next = workload.empty() ? holds_.begin() : holds_.lower_bound(Key(workload, ""));
  for (; next != holds_.end() && list.size() < limit; ++next) {
    if (!workload.empty() && next->first.first != workload) break;
    list.push_back(Snapshot(next->second));
  }
  return list;
}

size_t HoldTable::size() const {
  const MutexLock lock(mutex_);
  return holds_.size();
}

HoldInfo HoldTable::Snapshot(const Hold& hold) const {
  HoldInfo info = hold.info;
  info.reading = hold.uses.size();
  if (OutcomeOf(hold, now_())) info.state = HoldState::kEnding;
  return info;
}

std::optional<HoldState> HoldTable::OutcomeOf(const Hold& hold, TimePoint now) {
  const auto& expected = hold.info.expected_consumers;
  if (expected && hold.info.consumers >= *expected) return HoldState::kConsumed;
  if (hold.released) return HoldState::kReleased;
  if (now >= hold.expires) return HoldState::kExpired;
  return std::nullopt;
}

Result<HoldTable::Hold*> HoldTable::FindOpen(std::string_view workload, std::string_view id) {
  const Key key(workload, id);
  const TimePoint now = now_();
  EndDue(now);
  if (const auto found = holds_.find(key); found != holds_.end()) {
    const auto outcome = OutcomeOf(found->second, now);
    if (!outcome) return &found->second;
    return IsOver(found->second.info, *outcome);
  }
  if (const auto ended = ended_.find(key); ended != ended_.end()) {
    return IsOver(ended->second.info, ended->second.info.state);
  }
  return NoHold(workload, id);
}

Result<uint64_t> HoldTable::Use(const wire::HoldUse& use, const std::string& session) {
  if (use.for_ms > static_cast<uint64_t>(limits_.use_max.count())) {
    return Fail(ErrorCode::kInvalidArgument,
                "a hold is kept for a reader for " + std::to_string(limits_.use_max.count()) +
                    " ms at most, and not for " + std::to_string(use.for_ms),
                "give the transfer a shorter deadline_ms");
  }
  for (std::shared_ptr<const HoldCover> checked;;) {
    {
      const MutexLock lock(mutex_);
      ASSIGN_OR_RETURN(Hold * hold, FindOpen(use.workload, use.hold));
      if (hold->cover == checked) return Begin(hold, use, session);
      checked = hold->cover;
    }
    // Without the lock: this takes its time.
    if (Status covered = checked->Check(use.parts); !covered) {
      return Fail(std::move(covered).error().WithContext("hold '" + use.hold + "'"));
    }
  }
}

Result<uint64_t> HoldTable::Begin(Hold* hold, const wire::HoldUse& use,
                                  const std::string& session) {
  if (uses_.size() >= limits_.uses_max) {
    return Fail(ErrorCode::kResourceExhausted,
                std::to_string(uses_.size()) + " transfers read what is held here",
                "try again when some of them have ended");
  }
  const uint64_t number = RandomGeneration();
  const TimePoint until = now_() + milliseconds(static_cast<int64_t>(use.for_ms));
  uses_[number] = {Key(use.workload, use.hold), hold->number, session, use.consumers, until};
  use_ends_.insert({until, number});
  hold->uses.insert(number);
  return number;
}

HoldTable::Hold* HoldTable::Withdraw(uint64_t number, const Reading& reading) {
  const auto hold = holds_.find(reading.hold);
  if (hold == holds_.end() || hold->second.number != reading.number) return nullptr;
  hold->second.uses.erase(number);
  return &hold->second;
}

void HoldTable::EndUse(uint64_t use, bool succeeded) {
  const MutexLock lock(mutex_);
  const auto found = uses_.find(use);
  if (found == uses_.end()) return;
  const Reading reading = std::move(found->second);
  uses_.erase(found);
  use_ends_.erase({reading.until, use});
  Hold* hold = Withdraw(use, reading);
  if (hold == nullptr) return;
  if (succeeded) hold->info.consumers += reading.consumers;
  EndIfOver(reading.hold, now_());
}

void HoldTable::LoseUses(const std::string& session) {
  const MutexLock lock(mutex_);
  for (const auto& [number, reading] : uses_) {
    if (session.empty() || reading.session != session) continue;
    if (Withdraw(number, reading) != nullptr) EndIfOver(reading.hold, now_());
  }
}

void HoldTable::EndIfOver(const Key& key, TimePoint now) {
  const Hold& hold = holds_.at(key);
  if (!hold.uses.empty()) return;
  if (const auto outcome = OutcomeOf(hold, now)) End(key, *outcome);
}

void HoldTable::EndDue(TimePoint now) {
  while (!use_ends_.empty() && use_ends_.begin()->first <= now) {
    const uint64_t number = use_ends_.begin()->second;
    use_ends_.erase(use_ends_.begin());
    const Reading reading = std::move(uses_.at(number));
    uses_.erase(number);
    if (Withdraw(number, reading) != nullptr) EndIfOver(reading.hold, now);
  }
  while (!expiries_.empty() && expiries_.begin()->first <= now) {
    const Key key = expiries_.begin()->second;
    expiries_.erase(expiries_.begin());  // whoever reads it last ends it
    EndIfOver(key, now);
  }
}

void HoldTable::End(const Key& key, HoldState outcome) {
  const auto found = holds_.find(key);
  HoldInfo info = found->second.info;
  info.state = outcome;
  Event event;
  event.type = EventType::kHold;
  event.workload = key.first;
  event.workload_generation = found->second.generation;
  event.subject = key.second;
  event.hold = std::make_shared<const HoldInfo>(info);
  events_.Append(std::move(event));
  if (outcome == HoldState::kExpired) metrics_.HoldExpired();
  const uint64_t number = found->second.number;
  Forget(key);
  ended_[key] = {std::move(info), number};
  ended_order_.emplace_back(key, number);
  if (ended_order_.size() <= limits_.ended_kept_max) return;
  // A later end under the same id stays.
  const auto oldest = ended_.find(ended_order_.front().first);
  if (oldest != ended_.end() && oldest->second.number == ended_order_.front().second) {
    ended_.erase(oldest);
  }
  ended_order_.pop_front();
}

void HoldTable::Forget(const Key& key) {
  const auto found = holds_.find(key);
  expiries_.erase({found->second.expires, key});
  size_ -= found->second.cover->size();
  holds_.erase(found);
}

void HoldTable::EndWorkload(std::string_view workload, uint64_t generation) {
  const MutexLock lock(mutex_);
  for (auto next = holds_.lower_bound(Key(workload, "")); next != holds_.end();) {
    if (next->first.first != workload) break;
    const auto hold = next++;
    if (hold->second.generation == generation) Forget(hold->first);
  }
  std::erase_if(ended_, [&](const auto& entry) { return entry.first.first == workload; });
}

void HoldTable::Tick() {
  const MutexLock lock(mutex_);
  EndDue(now_());
}

}  // namespace gantry::engine
