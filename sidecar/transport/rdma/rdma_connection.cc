#include "sidecar/transport/rdma/rdma_connection.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <span>
#include <utility>

#include "lib/base/log.h"
#include "sidecar/transport/rdma/verbs_error.h"

namespace gantry::transport {
namespace {

constexpr size_t kCompletionsAtATime = 64;
constexpr int kPollsAtATime = 16;
// In flight: more fills no wire better, and is in the way of what is more urgent.
constexpr uint64_t kLaneBytesMax = 16 << 20;

// The peer's devices that this one has queue pairs to: that of the same place, which serves the
// same rail, and those of the crossings.
std::vector<uint32_t> PeerDevicesOf(size_t device, const std::set<Crossing>& crossings,
                                    size_t peer_devices) {
  std::vector<uint32_t> there = {static_cast<uint32_t>(device % peer_devices)};
  for (const Crossing& crossing : crossings) {
    if (crossing.device == device && crossing.peer_device != there.front()) {
      there.push_back(crossing.peer_device);
    }
  }
  return there;
}

}  // namespace

Result<std::unique_ptr<RdmaConnection>> RdmaConnection::Make(const RdmaDevices& devices,
                                                             const std::set<Crossing>& crossings,
                                                             QueuePairExchange& exchange,
                                                             TimePoint deadline) {
  if (exchange.peer_devices().empty()) {
    return Fail(ErrorCode::kPathUnavailable, "the peer has no RDMA device");
  }
  std::unique_ptr<RdmaConnection> made(new RdmaConnection());
  RETURN_IF_ERROR(made->MakeLanes(devices, crossings, exchange.peer_devices().size()));
  std::vector<wire::QueuePairRequest> requests;
  for (const Lane& lane : made->lanes_) requests.push_back({lane.peer_device, lane.address});
  ASSIGN_OR_RETURN(const wire::QueuePairGrant grant, exchange.Connect(requests, deadline));
  made->id_ = grant.connection;
  made->lease_ = milliseconds(grant.lease_ms);
  if (const Status joined = made->Join(devices, grant.ends); !joined) {
    // Else the peer keeps its ends for as long as the session lives.
    if (const Status ended = exchange.End(grant.connection, deadline); !ended) {
      log::Warning("a peer keeps queue pairs that nobody uses", {{"why", ended.error()}});
    }
    return Fail(joined.error());
  }
  return made;
}

Status RdmaConnection::Join(const RdmaDevices& devices,
                            const std::vector<wire::QueuePairAddress>& ends) {
  if (ends.size() != lanes_.size()) {
    return gantry::Fail(ErrorCode::kMalformedBody, "the peer made " + std::to_string(ends.size()) +
                                                       " queue pairs of " +
                                                       std::to_string(lanes_.size()));
  }
  for (size_t i = 0; i < ends.size(); ++i) {
    Lane& lane = lanes_[i];
    lane.peer = ends[i];
    RETURN_IF_ERROR(
        lane.pair->Connect(lane.address, ends[i], devices.QueuePairOptionsOf(lane.device)));
  }
  return {};
}

Status RdmaConnection::MakeLanes(const RdmaDevices& devices, const std::set<Crossing>& crossings,
                                 size_t peer_devices) {
  const auto pairs = static_cast<uint32_t>(devices.options().queue_pairs);
  for (size_t device = 0; device < devices.size(); ++device) {
    if (!devices.IsUp(device)) continue;
    const QueuePairOptions options = devices.QueuePairOptionsOf(device);
    VerbsDevice& nic = *devices.at(device).device;
    const std::vector<uint32_t> there = PeerDevicesOf(device, crossings, peer_devices);
    const auto lanes = pairs * static_cast<uint32_t>(there.size());
    ASSIGN_OR_RETURN(auto queue, nic.CreateCompletionQueue(lanes * options.work_requests));
    queues_.push_back(std::move(queue));
    RegionAccess access;
    access.local_write = true;
    ASSIGN_OR_RETURN(auto flushed,
                     nic.Register(std::as_writable_bytes(std::span(&flushed_, 1)), access));
    const uint32_t flush_key = flushed->local_key();
    flush_regions_.push_back(std::move(flushed));
    for (uint32_t i = 0; i < lanes; ++i) {
      Lane lane;
      lane.device = device;
      lane.device_name = nic.name();
      lane.counters = devices.at(device).counters.get();
      lane.peer_device = there[i / pairs];
      lane.queue = queues_.back().get();
      ASSIGN_OR_RETURN(lane.pair, nic.CreateQueuePair(*lane.queue, options));
      lane.address = devices.AddressOf(device, *lane.pair);
      lane.room = options.work_requests;
      lane.flush_key = flush_key;
      lane.counters->queue_pairs.fetch_add(1, std::memory_order_relaxed);
      lanes_.push_back(std::move(lane));
    }
  }
  if (!lanes_.empty()) return {};
  return gantry::Fail(ErrorCode::kPathUnavailable, "no RDMA device here has an active port",
                      "check cable and switch");
}

RdmaConnection::~RdmaConnection() {
  for (const Lane& lane : lanes_) {
    lane.counters->queue_pairs.fetch_sub(1, std::memory_order_relaxed);
    lane.counters->Count({.ended = lane.sent.size()});
  }
}

RdmaConnection::Lane* RdmaConnection::Roomiest(DeviceSet here, DeviceSet there, bool* fits) {
  Lane* best = nullptr;
  for (Lane& lane : lanes_) {
    if (!here.Has(lane.device) || !there.Has(lane.peer_device)) continue;
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
    if (!fits) misfit_ = Misfit{&operation, here, there};
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
  item.local_key = stretches.region(work.work.local_region).local_keys[lane.device];
  item.length = work.work.length;
  item.remote_address = work.work.remote_address;
  item.remote_key = stretches.chunk(work.work.remote_chunk).keys[lane.peer_device];
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
  if (posted < lane->staged.size() && !broken_) {
    reason_ = VerbsError(lane->device_name, "posting work requests", error_number);
    Break();
  }
  lane->staged.clear();
}

bool RdmaConnection::Poll(std::optional<Failure>* failure) {
  std::array<WorkCompletion, kCompletionsAtATime> completions;
  bool any = false;
  for (const auto& queue : queues_) {
    for (int i = 0; i < kPollsAtATime; ++i) {
      const int count = queue->Poll(completions);
      if (count < 0) {
        if (!broken_) {
          reason_ = Error(ErrorCode::kDeviceError, "a completion queue of an RDMA device is broken",
                          "see the kernel's log");
        }
        Drop();
        return true;
      }
      for (int k = 0; k < count; ++k) {
        Complete(queue.get(), completions[static_cast<size_t>(k)], failure);
      }
      any |= count > 0;
      if (static_cast<size_t>(count) < completions.size()) break;
    }
  }
  return any;
}

void RdmaConnection::Complete(const VerbsCompletionQueue* queue, const WorkCompletion& completion,
                              std::optional<Failure>* failure) {
  // Each device has numbers of its own for its queue pairs, and a completion queue.
  const auto lane = std::find_if(lanes_.begin(), lanes_.end(), [&](const Lane& one) {
    return one.queue == queue && one.pair != nullptr && one.pair->number() == completion.queue_pair;
  });
  if (lane == lanes_.end() || completion.id < lane->first_id) return;
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
      if (!work.is_flush) tally.Moved(work.operation->direction(), work.work.length);
      work.operation->Moved(work);
      continue;
    }
    const bool is_cause = completion.status != WorkStatus::kFlushed && !failed_;
    if (is_cause) {
      failed_ = true;
      *failure = Failure{completion, lane->device, work.operation};
    } else if (!broken_) {
      reason_ = Error(ErrorCode::kDeviceError,
                      "RDMA device " + lane->device_name + " gave up a queue pair",
                      "see the kernel's log");
    }
    if (!work.is_flush) ++tally.lost;
    work.operation->Lost(work);
    if (!broken_) Break();
  }
  counters.Count(tally);
}

bool RdmaConnection::UsesAllOf(const RdmaDevices& devices,
                               const std::set<Crossing>& crossings) const {
  for (size_t device = 0; device < devices.size(); ++device) {
    const bool used = std::any_of(lanes_.begin(), lanes_.end(),
                                  [&](const Lane& lane) { return lane.device == device; });
    if (used != devices.IsUp(device)) return false;
  }
  return std::all_of(crossings.begin(), crossings.end(), [&](const Crossing& crossing) {
    return !devices.IsUp(crossing.device) ||
           std::any_of(lanes_.begin(), lanes_.end(), [&](const Lane& lane) {
             return lane.device == crossing.device && lane.peer_device == crossing.peer_device;
           });
  });
}

Status RdmaConnection::Arm() {
  for (const auto& queue : queues_) RETURN_IF_ERROR(queue->Arm());
  return {};
}

std::vector<VerbsCompletionQueue*> RdmaConnection::queues() {
  std::vector<VerbsCompletionQueue*> queues;
  for (const auto& queue : queues_) queues.push_back(queue.get());
  return queues;
}

void RdmaConnection::Break() {
  if (std::exchange(broken_, true)) return;
  for (Lane& lane : lanes_) {
    if (const Status failed = lane.pair->Fail(); !failed) {
      log::Warning("a queue pair does not end its work", {{"why", failed.error()}});
      return Drop();
    }
  }
}

void RdmaConnection::Drop() {
  broken_ = true;
  for (Lane& lane : lanes_) {
    lane.pair.reset();  // nothing of it moves here any more
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
