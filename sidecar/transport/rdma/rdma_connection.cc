#include "sidecar/transport/rdma/rdma_connection.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <span>
#include <thread>
#include <utility>

#include "lib/base/log.h"
#include "sidecar/transport/rdma/verbs/verbs_error.h"

namespace gantry::transport {
namespace {

constexpr size_t kCompletionsAtATime = 64;
constexpr int kPollsAtATime = 16;
// In flight: more fills no wire better, and is in the way of what is more urgent.
constexpr uint64_t kLaneBytesMax = 16 << 20;

constexpr milliseconds kFlushLook{1};  // for what comes back as flushed, how often

}  // namespace

RdmaConnection::~RdmaConnection() {
  for (const Lane& lane : lanes_) {
    lane.counters->queue_pairs.fetch_sub(1, std::memory_order_relaxed);
    lane.counters->Count({.ended = lane.sent.size()});
  }
}

RdmaConnection::Lane* RdmaConnection::Roomiest(DeviceSet here, DeviceSet there, bool* fits) {
  Lane* best = nullptr;
  for (Lane& lane : lanes_) {
    if (!here.Has(lane.link.device) || !there.Has(lane.link.peer_device)) continue;
    *fits = true;
    if (lane.room == 0 || lane.bytes >= kLaneBytesMax) continue;
    if (best == nullptr || lane.bytes < best->bytes) best = &lane;
  }
  return best;
}

bool RdmaConnection::Post(RdmaOperation& operation, size_t most, TimePoint now) {
  if (broken_) return false;
  size_t taken = 0;
  for (; taken < most && operation.has_more(); ++taken) {
    const WorkRequest& next = operation.Next();
    const DeviceSet here = operation.stretches().DevicesHere(next);
    const DeviceSet there = operation.stretches().DevicesThere(next);
    bool fits = false;
    Lane* const lane = Roomiest(here, there, &fits);
    if (!fits) misfit_ = Misfit{here, there};
    if (lane == nullptr) break;
    lane->staged.push_back(operation.Take(now));
    lane->bytes += lane->staged.back().work.length;
    --lane->room;
    operation.UseLane(static_cast<size_t>(lane - lanes_.data()));
  }
  for (Lane& lane : lanes_) {
    if (!lane.staged.empty()) Send(&lane);
  }
  return taken != 0;
}

// Reads follow what was written before them through the same queue pair, and their answers come
// from memory, past whatever the peer's device had still on its way there.
void RdmaConnection::PostFlushes(RdmaOperation& operation) {
  if (broken_) return;
  const std::vector<size_t> unflushed = operation.unflushed();
  for (const size_t index : unflushed) {
    Lane& lane = lanes_[index];
    if (lane.room == 0) continue;  // what comes free next is for it
    lane.staged.push_back(operation.TakeFlush(index));
    --lane.room;
    Send(&lane);
  }
}

WorkItem RdmaConnection::ItemOf(const Lane& lane, const NumberedWork& work, uint64_t id,
                                bool signalled) const {
  WorkItem item;
  item.id = id;
  if (work.is_flush) {
    item.operation = WorkOperation::kRead;
    item.local_address = reinterpret_cast<uintptr_t>(&flushed_);
    item.local_key = lane.flush_key;
    item.length = sizeof(flushed_);
    item.remote_address = lane.peer.flush_address;
    item.remote_key = lane.peer.flush_key;
    return item;
  }
  const PlanStretches& stretches = work.operation->stretches();
  item.operation = work.operation->direction();
  item.signalled = signalled;
  item.local_address = work.work.local_address;
  const MemoryRegionSet::Chunk& region = stretches.region(work.work.local_region);
  item.local_key = region.local_keys[lane.link.device];
  item.length = work.work.length;
  item.inlined = item.operation == WorkOperation::kWrite && region.may_be_inlined &&
                 item.length <= lane.inline_bytes;
  item.remote_address = work.work.remote_address;
  item.remote_key = stretches.chunk(work.work.remote_chunk).keys[lane.link.peer_device];
  return item;
}

void RdmaConnection::Send(Lane* lane) {
  items_.clear();
  uint64_t id = lane->first_id + lane->sent.size();
  for (const NumberedWork& work : lane->staged) {
    const bool last = items_.size() + 1 == lane->staged.size();
    items_.push_back(ItemOf(*lane, work, id++, last));
  }
  int error_number = 0;
  // Another lane may have broken the connection just now.
  const size_t posted = broken_ ? 0 : lane->pair->Post(items_, &error_number);
  for (size_t i = 0; i < posted; ++i) lane->sent.push_back(lane->staged[i]);
  in_flight_ += posted;
  lane->counters->in_flight.fetch_add(posted, std::memory_order_relaxed);
  for (size_t i = lane->staged.size(); i > posted; --i) {
    const NumberedWork& work = lane->staged[i - 1];
    lane->bytes -= work.work.length;
    ++lane->room;
    work.operation->NotPosted(work);
  }
  // None of those that were taken is signalled then: nothing says when they are done.
  if (posted < lane->staged.size()) {
    Break(VerbsError(lane->device_name, "posting work requests", error_number));
  }
  lane->staged.clear();
}

bool RdmaConnection::Poll(std::optional<Failure>* failure) {
  std::array<WorkCompletion, kCompletionsAtATime> completions;
  bool any = false;
  for (const Part& part : parts_) {
    for (int i = 0; i < kPollsAtATime; ++i) {
      const int count = part.queue->Poll(completions);
      if (count < 0) {
        Break(Error(ErrorCode::kDeviceError, "a completion queue of an RDMA device is broken",
                    "see the kernel's log"));
        return true;
      }
      for (int k = 0; k < count; ++k) {
        Complete(part.link.device, completions[static_cast<size_t>(k)], failure);
      }
      any |= count > 0;
      if (static_cast<size_t>(count) < completions.size()) break;
    }
  }
  return any;
}

// Each device has numbers of its own for its queue pairs.
RdmaConnection::Lane* RdmaConnection::LaneOf(size_t device, uint32_t number) {
  const auto found = std::find_if(lanes_.begin(), lanes_.end(), [&](const Lane& lane) {
    return lane.link.device == device && lane.address.number == number;
  });
  return found == lanes_.end() ? nullptr : &*found;
}

void RdmaConnection::Complete(size_t device, const WorkCompletion& completion,
                              std::optional<Failure>* failure) {
  Lane* const lane = LaneOf(device, completion.queue_pair);
  if (lane == nullptr || completion.id < lane->first_id) return;
  NicCounters& counters = *lane->counters;
  NicTally tally;
  // In their order: what came before one that ends, well or not, and said nothing, is done.
  while (!lane->sent.empty() && lane->first_id <= completion.id) {
    const NumberedWork work = lane->sent.front();
    lane->sent.pop_front();
    const bool ended_well =
        lane->first_id < completion.id || completion.status == WorkStatus::kSuccess;
    ++lane->first_id;
    ++lane->room;
    --in_flight_;
    ++tally.ended;
    lane->bytes -= work.work.length;
    if (ended_well) {
      moved_ = true;
      if (!work.is_flush) tally.Moved(work.operation->direction(), work.work.length);
      work.operation->Moved(work);
      continue;
    }
    const bool is_cause = completion.status != WorkStatus::kFlushed && !failed_;
    if (is_cause) {
      failed_ = true;
      *failure = Failure{completion, lane->link.device, work.operation};
    } else if (!broken_) {
      reason_ = Error(ErrorCode::kDeviceError,
                      "RDMA device " + lane->device_name + " gave up a queue pair",
                      "see the kernel's log");
    }
    if (!work.is_flush) ++tally.lost;
    work.operation->Lost(work);
    Break();
  }
  counters.Count(tally);
}

bool RdmaConnection::Uses(const RdmaLink& link) const {
  return std::any_of(lanes_.begin(), lanes_.end(),
                     [&link](const Lane& lane) { return lane.link == link; });
}

DeviceSet RdmaConnection::devices() const {
  DeviceSet devices;
  for (const Lane& lane : lanes_) devices.Add(lane.link.device);
  return devices;
}

std::string RdmaConnection::DownOf(const RdmaDevices& devices) const {
  for (const Lane& lane : lanes_) {
    if (!devices.IsUp(lane.link.device)) return lane.device_name;
  }
  return {};
}

Status RdmaConnection::Arm() {
  for (const Part& part : parts_) RETURN_IF_ERROR(part.queue->Arm());
  return {};
}

std::vector<VerbsCompletionQueue*> RdmaConnection::queues() {
  std::vector<VerbsCompletionQueue*> queues;
  for (const Part& part : parts_) queues.push_back(part.queue.get());
  return queues;
}

void RdmaConnection::Break(Error why) {
  if (!broken_) reason_ = std::move(why);
  Break();
}

void RdmaConnection::TakeDown(milliseconds flush) {
  broken_ = true;
  const TimePoint until = Clock::now() + flush;
  bool flushes = flush.count() != 0 && in_flight_ != 0;
  for (Lane& lane : lanes_) {
    lane.ended_id = lane.first_id;
    if (!flushes) continue;
    if (const Status failed = lane.pair->Fail(); !failed) {
      log::Warning("a queue pair does not end its work", {{"why", failed.error()}});
      flushes = false;
    }
  }
  while (flushes && TakeEnded() && Clock::now() < until) std::this_thread::sleep_for(kFlushLook);
  for (Lane& lane : lanes_) lane.pair.reset();
  parts_.clear();
}

bool RdmaConnection::TakeEnded() {
  std::array<WorkCompletion, kCompletionsAtATime> completions;
  for (const Part& part : parts_) {
    for (int count = 1; count > 0;) {
      count = part.queue->Poll(completions);
      if (count < 0) return false;
      for (int k = 0; k < count; ++k) {
        const WorkCompletion& completion = completions[static_cast<size_t>(k)];
        ended_.emplace_back(part.link.device, completion);
        Lane* const lane = LaneOf(part.link.device, completion.queue_pair);
        if (lane != nullptr) lane->ended_id = std::max(lane->ended_id, completion.id + 1);
      }
    }
  }
  return std::any_of(lanes_.begin(), lanes_.end(), [](const Lane& lane) {
    return lane.ended_id < lane.first_id + lane.sent.size();
  });
}

void RdmaConnection::CompleteInFlight(std::optional<Failure>* failure) {
  for (const auto& [device, completion] : ended_) Complete(device, completion, failure);
  ended_.clear();
  for (Lane& lane : lanes_) {
    NicTally tally{.ended = lane.sent.size()};
    for (const NumberedWork& work : lane.sent) {
      if (!work.is_flush) ++tally.lost;
      work.operation->Lost(work);
    }
    lane.counters->Count(tally);
    in_flight_ -= lane.sent.size();
    lane.sent.clear();
  }
}

}  // namespace gantry::transport
