#include "sidecar/transport/rdma/rdma_connection.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <map>
#include <utility>

#include "lib/base/log.h"

namespace gantry::transport {
namespace {

constexpr size_t kCompletionsAtATime = 64;
constexpr int kPollsAtATime = 16;

// The peer's device of the same place serves the same rail.
uint32_t PeerDeviceOf(size_t device, size_t peer_devices) {
  return static_cast<uint32_t>(device % peer_devices);
}

}  // namespace

Result<std::unique_ptr<RdmaConnection>> RdmaConnection::Make(const RdmaDevices& devices,
                                                             QueuePairExchange& exchange,
                                                             TimePoint deadline) {
  if (exchange.peer_devices().empty()) {
    return Fail(ErrorCode::kPathUnavailable, "the peer has no RDMA device");
  }
  std::unique_ptr<RdmaConnection> made(new RdmaConnection());
  RETURN_IF_ERROR(made->MakeLanes(devices, exchange.peer_devices()));
  std::vector<wire::QueuePairRequest> requests;
  for (const Lane& lane : made->lanes_) requests.push_back({lane.peer_device, lane.address});
  ASSIGN_OR_RETURN(const wire::QueuePairGrant grant, exchange.Connect(requests, deadline));
  if (grant.ends.size() != requests.size()) {
    return Fail(ErrorCode::kMalformedBody, "the peer made " + std::to_string(grant.ends.size()) +
                                               " queue pairs of " +
                                               std::to_string(requests.size()));
  }
  made->id_ = grant.connection;
  made->lease_ = milliseconds(grant.lease_ms);
  for (size_t i = 0; i < grant.ends.size(); ++i) {
    Lane& lane = made->lanes_[i];
    RETURN_IF_ERROR(
        lane.pair->Connect(lane.address, grant.ends[i], devices.QueuePairOptionsOf(lane.device)));
  }
  return made;
}

Status RdmaConnection::MakeLanes(const RdmaDevices& devices,
                                 const std::vector<wire::RdmaDeviceAddress>& peers) {
  const auto pairs = static_cast<uint32_t>(devices.options().queue_pairs);
  for (size_t device = 0; device < devices.size(); ++device) {
    if (!devices.at(device).up->load(std::memory_order_relaxed)) continue;
    const QueuePairOptions options = devices.QueuePairOptionsOf(device);
    VerbsDevice& nic = *devices.at(device).device;
    ASSIGN_OR_RETURN(auto queue, nic.CreateCompletionQueue(pairs * options.work_requests));
    queues_.push_back(std::move(queue));
    for (uint32_t i = 0; i < pairs; ++i) {
      Lane lane;
      lane.device = device;
      lane.peer_device = PeerDeviceOf(device, peers.size());
      lane.queue = queues_.back().get();
      ASSIGN_OR_RETURN(lane.pair, nic.CreateQueuePair(*lane.queue, options));
      lane.address = devices.AddressOf(device, *lane.pair);
      lane.room = options.work_requests;
      lanes_.push_back(std::move(lane));
    }
  }
  if (!lanes_.empty()) return {};
  return gantry::Fail(ErrorCode::kPathUnavailable, "no RDMA device here has an active port",
                      "check cable and switch");
}

RdmaConnection::Lane* RdmaConnection::Roomiest() {
  Lane* best = nullptr;
  for (Lane& lane : lanes_) {
    if (lane.room == 0) continue;
    if (best == nullptr || lane.bytes < best->bytes) best = &lane;
  }
  return best;
}

bool RdmaConnection::Post(RdmaOperation& operation, size_t most, TimePoint now) {
  if (broken_) return false;
  size_t taken = 0;
  for (; taken < most && operation.has_more(); ++taken) {
    Lane* const lane = Roomiest();
    if (lane == nullptr) break;
    lane->staged.push_back(operation.Take(now));
    lane->bytes += lane->staged.back().work.length;
    --lane->room;
  }
  for (Lane& lane : lanes_) {
    if (!lane.staged.empty()) Flush(&lane);
  }
  return taken != 0;
}

WorkItem RdmaConnection::ItemOf(const Lane& lane, const NumberedWork& work, uint64_t id,
                                bool signalled) const {
  const PlanStretches& stretches = work.operation->stretches();
  WorkItem item;
  item.id = id;
  item.operation = work.operation->direction();
  item.signalled = signalled;
  item.local_address = work.work.local_address;
  item.local_key = stretches.region(work.work.local_region).local_keys[lane.device];
  item.length = work.work.length;
  item.remote_address = work.work.remote_address;
  item.remote_key = stretches.chunk(work.work.remote_chunk).keys[lane.peer_device];
  return item;
}

void RdmaConnection::Flush(Lane* lane) {
  items_.clear();
  uint64_t id = lane->first_id + lane->sent.size();
  for (const NumberedWork& work : lane->staged) {
    const bool last = items_.size() + 1 == lane->staged.size();
    items_.push_back(ItemOf(*lane, work, id++, last));
  }
  int error_number = 0;
  const size_t posted = lane->pair->Post(items_, &error_number);
  for (size_t i = 0; i < posted; ++i) lane->sent.push_back(lane->staged[i]);
  in_flight_ += posted;
  for (size_t i = lane->staged.size(); i > posted; --i) {
    const NumberedWork& work = lane->staged[i - 1];
    lane->bytes -= work.work.length;
    ++lane->room;
    work.operation->NotPosted(work);
  }
  // None of those that were taken is signalled then: nothing says when they are done.
  if (posted < lane->staged.size()) {
    log::Error("posting work requests failed, the connection is made anew",
               {{"errno", error_number}, {"posted", posted}});
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
        log::Error("a completion queue is broken, the connection is made anew", {});
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
  // In their order: what came before one that ends, well or not, and said nothing, is done.
  while (!lane->sent.empty() && lane->first_id <= completion.id) {
    const NumberedWork work = lane->sent.front();
    lane->sent.pop_front();
    const bool ended_well =
        lane->first_id < completion.id || completion.status == WorkStatus::kSuccess;
    ++lane->first_id;
    ++lane->room;
    --in_flight_;
    lane->bytes -= work.work.length;
    if (ended_well) {
      work.operation->Moved(work);
      continue;
    }
    const bool is_cause = completion.status != WorkStatus::kFlushed && !failed_;
    if (is_cause) {
      failed_ = true;
      *failure = Failure{completion, lane->device, work.operation};
    }
    Lose(work);
    if (!broken_) Break();
  }
}

void RdmaConnection::Lose(const NumberedWork& work) {
  if (std::find(losers_.begin(), losers_.end(), work.operation) == losers_.end()) {
    losers_.push_back(work.operation);
  }
  work.operation->Lost(work);
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
    for (const NumberedWork& work : lane.sent) Lose(work);
    in_flight_ -= lane.sent.size();
    lane.sent.clear();
  }
}

}  // namespace gantry::transport
