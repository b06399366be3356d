#include "sidecar/engine/hold_table.h"

#include <algorithm>

#include "lib/base/name.h"
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

std::string GroupField(size_t group, std::string_view list, size_t index) {
  return "/groups/" + std::to_string(group) + "/" + std::string(list) + "/" + std::to_string(index);
}

tl::unexpected<Error> IsOver(const HoldInfo& info) {
  return Fail(ErrorCode::kLeaseExpired,
              "hold '" + info.id + "' of workload '" + info.workload +
                  "' is over: " + std::string(NameOf(info.state)),
              "its blocks may hold something else by now: compute them, or ask the owner again");
}

}  // namespace

HoldTable::HoldTable(const registry::BufferRegistry& registry, EventLog& events,
                     metrics::Metrics& metrics, HoldLimits limits, Now now)
    : registry_(registry),
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

Result<HoldTable::Covers> HoldTable::CoversOf(const wire::HoldRequest& request,
                                              size_t* runs) const {
  Covers covers;
  for (size_t i = 0; i < request.groups.size(); ++i) {
    const wire::HoldGroup& group = request.groups[i];
    std::shared_ptr<const BlockRuns> blocks;
    if (group.blocks) {
      blocks = std::make_shared<const BlockRuns>(*group.blocks);
      *runs += blocks->size();
    }
    for (size_t j = 0; j < group.buffers.size(); ++j) {
      auto buffer = registry_.ByName(request.workload, group.buffers[j]);
      if (!buffer) return Fail(std::move(buffer).error().WithField(GroupField(i, "buffers", j)));
      const registry::Buffer::Description& description = (*buffer)->description();
      const uint64_t count = description.layout ? description.layout->blocks : 0;
      for (size_t k = 0; group.blocks && k < group.blocks->size(); ++k) {
        if ((*group.blocks)[k] < count) continue;
        return Fail(ErrorCode::kOutOfRange,
                    "buffer '" + description.name + "' has " + std::to_string(count) +
                        " blocks, and none with the id " + std::to_string((*group.blocks)[k]),
                    {}, GroupField(i, "blocks", k));
      }
      Cover& cover = covers[description.name];
      cover.generation = description.generation;
      cover.blocks.push_back(blocks);
    }
  }
  return covers;
}

Result<HoldInfo> HoldTable::Put(const std::string& id, const wire::HoldRequest& request,
                                uint64_t generation) {
  RETURN_IF_ERROR(CheckName(id, "/id"));
  ASSIGN_OR_RETURN(const milliseconds ttl, CheckTtl(request.ttl_ms));
  size_t runs = 0;
  ASSIGN_OR_RETURN(Covers covers, CoversOf(request, &runs));
  const uint64_t content = ContentOf(request);
  const Key key(request.workload, id);
  const MutexLock lock(mutex_);
  EndDue(now_());
  auto found = holds_.find(key);
  if (found != holds_.end() && found->second.generation != generation) {
    Forget(key);
    found = holds_.end();
  }
  if (found != holds_.end() && found->second.content != content) {
    return Fail(ErrorCode::kConflict, "hold '" + id + "' stands with another content",
                "use a new id, or release it first", "/id");
  }
  if (found == holds_.end()) {
    if (holds_.size() >= limits_.holds_max || runs_ + runs > limits_.runs_max) {
      return Fail(ErrorCode::kResourceExhausted,
                  "there are " + std::to_string(holds_.size()) + " holds over " +
                      std::to_string(runs_) + " runs of blocks",
                  "release those that are not needed, or give them less time");
    }
    found = holds_.emplace(key, Hold()).first;
    Hold& made = found->second;
    made.info.id = id;
    made.info.workload = request.workload;
    made.info.expected_consumers = request.expected_consumers;
    made.generation = generation;
    made.content = content;
    made.runs = runs;
    runs_ += runs;
    ended_.erase(key);
  }
  // Also of one that stands: its buffers may have been registered anew.
  found->second.covers = std::move(covers);
  SetExpiry(&found->second, ttl);
  return Snapshot(found->second);
}

void HoldTable::SetExpiry(Hold* hold, milliseconds ttl) {
  const TimePoint now = now_();
  const Key key(hold->info.workload, hold->info.id);
  expiries_.erase({hold->expires, key});
  hold->expires = now + ttl;
  expiries_.insert({hold->expires, key});
  hold->info.expires_unix_ms = UnixMillis(hold->expires, now);
}

Result<HoldInfo> HoldTable::Extend(std::string_view workload, std::string_view id,
                                   uint64_t ttl_ms) {
  ASSIGN_OR_RETURN(const milliseconds ttl, CheckTtl(ttl_ms));
  const MutexLock lock(mutex_);
  ASSIGN_OR_RETURN(Hold * hold, Find(workload, id));
  SetExpiry(hold, ttl);
  return Snapshot(*hold);
}

Status HoldTable::Release(std::string_view workload, std::string_view id) {
  const MutexLock lock(mutex_);
  const auto found = Find(workload, id);
  if (found) End(Key(workload, id), HoldState::kReleased);
  if (found || found.error().code == ErrorCode::kLeaseExpired) return {};
  return Fail(found.error());
}

Result<HoldInfo> HoldTable::Get(std::string_view workload, std::string_view id) const {
  const Key key(workload, id);
  const MutexLock lock(mutex_);
  if (const auto found = holds_.find(key); found != holds_.end()) return Snapshot(found->second);
  if (const auto ended = ended_.find(key); ended != ended_.end()) return ended->second;
  return Fail(ErrorCode::kNotFound,
              "workload '" + key.first + "' has no hold '" + key.second + "'");
}

std::vector<HoldInfo> HoldTable::List(std::string_view workload, size_t limit) const {
  std::vector<HoldInfo> list;
  const MutexLock lock(mutex_);
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

HoldInfo HoldTable::Snapshot(const Hold& hold) {
  HoldInfo info = hold.info;
  info.reading = hold.uses.size();
  return info;
}

bool HoldTable::IsConsumed(const Hold& hold) {
  return hold.info.expected_consumers && hold.info.consumers >= *hold.info.expected_consumers;
}

Result<HoldTable::Hold*> HoldTable::Find(std::string_view workload, std::string_view id) {
  EndDue(now_());
  const Key key(workload, id);
  if (const auto found = holds_.find(key); found != holds_.end()) return &found->second;
  if (const auto ended = ended_.find(key); ended != ended_.end()) return IsOver(ended->second);
  return Fail(ErrorCode::kNotFound,
              "workload '" + key.first + "' has no hold '" + key.second + "'");
}

Status HoldTable::CheckPart(const wire::HoldUsePart& part, const Hold& hold) {
  for (const wire::HeldBuffer& buffer : part.buffers) {
    const auto cover = hold.covers.find(buffer.name);
    if (cover == hold.covers.end()) {
      return Fail(ErrorCode::kOutOfRange,
                  "hold '" + hold.info.id + "' is not about buffer '" + buffer.name + "'");
    }
    if (cover->second.generation != buffer.generation) {
      return Fail(ErrorCode::kStaleGeneration,
                  "buffer '" + buffer.name + "' was registered anew since it was held");
    }
    const auto& lists = cover->second.blocks;
    if (std::find(lists.begin(), lists.end(), nullptr) != lists.end()) continue;
    if (!part.blocks) {
      return Fail(ErrorCode::kOutOfRange,
                  "hold '" + hold.info.id + "' is about some blocks of '" + buffer.name +
                      "', and the transfer names ranges",
                  "name blocks, or hold the whole buffer");
    }
    for (const uint64_t block : *part.blocks) {
      const auto has = [block](const auto& list) { return list->Has(block); };
      if (std::any_of(lists.begin(), lists.end(), has)) continue;
      return Fail(ErrorCode::kOutOfRange, "block " + std::to_string(block) + " of buffer '" +
                                              buffer.name + "' is not in hold '" + hold.info.id +
                                              "'");
    }
  }
  return {};
}

Result<uint64_t> HoldTable::Use(const wire::HoldUse& use, const std::string& session) {
  const MutexLock lock(mutex_);
  ASSIGN_OR_RETURN(Hold * hold, Find(use.workload, use.hold));
  const TimePoint now = now_();
  // Only those who read keep it: no one else begins to.
  if (now >= hold->expires || IsConsumed(*hold)) {
    HoldInfo info = hold->info;
    info.state = IsConsumed(*hold) ? HoldState::kConsumed : HoldState::kExpired;
    return IsOver(info);
  }
  for (const wire::HoldUsePart& part : use.parts) RETURN_IF_ERROR(CheckPart(part, *hold));
  if (uses_.size() >= limits_.uses_max) {
    return Fail(ErrorCode::kResourceExhausted,
                std::to_string(uses_.size()) + " transfers read what is held here",
                "try again when some of them have ended");
  }
  const auto time = std::min<uint64_t>(use.for_ms, static_cast<uint64_t>(limits_.use_max.count()));
  const uint64_t number = RandomGeneration();
  const TimePoint until = now + milliseconds(static_cast<int64_t>(time));
  uses_[number] = {Key(use.workload, use.hold), hold->generation, session, until};
  use_ends_.insert({until, number});
  hold->uses.insert(number);
  return number;
}

HoldTable::Hold* HoldTable::Withdraw(uint64_t number, const Reading& reading) {
  const auto hold = holds_.find(reading.hold);
  if (hold == holds_.end() || hold->second.generation != reading.generation) return nullptr;
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
  if (succeeded) ++hold->info.consumers;
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
  if (IsConsumed(hold)) {
    End(key, HoldState::kConsumed);
  } else if (now >= hold.expires) {
    End(key, HoldState::kExpired);
  }
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
  Forget(key);
  ended_[key] = std::move(info);
  ended_order_.push_back(key);
  if (ended_order_.size() > limits_.ended_kept_max) {
    ended_.erase(ended_order_.front());
    ended_order_.pop_front();
  }
}

void HoldTable::Forget(const Key& key) {
  const auto found = holds_.find(key);
  expiries_.erase({found->second.expires, key});
  runs_ -= found->second.runs;
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
