#include "sidecar/transport/rdma/rdma_target.h"

#include <utility>

namespace gantry::transport {
namespace {

constexpr uint32_t kNothingIsPosted = 16;
constexpr uint64_t kAll = 0;  // no connection has this number

}  // namespace

Result<wire::QueuePairGrant> RdmaTarget::Connect(const std::string& session,
                                                 std::span<const wire::QueuePairRequest> requests) {
  {
    const MutexLock lock(mutex_);
    const auto of = sessions_.find(session);
    const size_t connections =
        (of == sessions_.end() ? 0 : of->second.size()) + being_made_.count(session);
    if (connections >= limits_.connections_per_session_max) {
      return Fail(ErrorCode::kResourceExhausted,
                  "the session has " + std::to_string(connections) + " connections of queue pairs",
                  "end one before another is made");
    }
    if (requests.size() > limits_.queue_pairs_max - pairs_) {
      return Fail(ErrorCode::kResourceExhausted, "peers have " + std::to_string(pairs_) +
                                                     " queue pairs here, of " +
                                                     std::to_string(limits_.queue_pairs_max));
    }
    pairs_ += requests.size();
    being_made_.insert(session);
  }
  wire::QueuePairGrant grant;
  auto made = Make(requests, &grant.ends);
  const MutexLock lock(mutex_);
  being_made_.erase(being_made_.find(session));
  if (!made) {
    pairs_ -= requests.size();
    return Fail(std::move(made).error());
  }
  grant.connection = ++last_connection_;
  grant.lease_ms = static_cast<uint32_t>(devices_.options().lease.count());
  sessions_[session].emplace(grant.connection, *std::move(made));
  return grant;
}

Result<std::shared_ptr<RdmaTarget::Ends>> RdmaTarget::Make(
    std::span<const wire::QueuePairRequest> requests,
    std::vector<wire::QueuePairAddress>* addresses) {
  auto ends = std::make_shared<Ends>();
  std::map<uint32_t, VerbsCompletionQueue*> queues;
  for (const wire::QueuePairRequest& request : requests) {
    if (request.device >= devices_.size()) {
      return Fail(ErrorCode::kNotFound, "there is no RDMA device " +
                                            std::to_string(request.device) + " here, of " +
                                            std::to_string(devices_.size()));
    }
    VerbsDevice& device = *devices_.at(request.device).device;
    VerbsCompletionQueue*& queue = queues[request.device];
    if (queue == nullptr) {
      ASSIGN_OR_RETURN(auto made, device.CreateCompletionQueue(kNothingIsPosted));
      queue = made.get();
      ends->queues.push_back(std::move(made));
    }
    QueuePairOptions options = devices_.QueuePairOptionsOf(request.device);
    options.remote_read = options.remote_write = true;  // as far as keys were told
    ASSIGN_OR_RETURN(auto pair, device.CreateQueuePair(*queue, options));
    QueuePairAddress address = devices_.AddressOf(request.device, *pair);
    RETURN_IF_ERROR(AddFlush(request.device, &address));
    RETURN_IF_ERROR(pair->Connect(address, request.from, options));
    addresses->push_back(address);
    ends->pairs.push_back(std::move(pair));
  }
  return ends;
}

Status RdmaTarget::AddFlush(uint32_t device, wire::QueuePairAddress* address) {
  const MutexLock lock(mutex_);
  std::unique_ptr<VerbsRegion>& region = flush_regions_[device];
  if (region == nullptr) {
    RegionAccess access;
    access.remote_read = true;
    ASSIGN_OR_RETURN(region, devices_.at(device).device->Register(flushed_, access));
  }
  address->flush_address = reinterpret_cast<uintptr_t>(flushed_.data());
  address->flush_key = region->remote_key();
  return {};
}

void RdmaTarget::EndConnection(const std::string& session, uint64_t connection) {
  if (connection != kAll) Destroy(session, connection);
}

void RdmaTarget::End(const std::string& session) { Destroy(session, kAll); }

bool RdmaTarget::IsBeingDestroyed(const std::string& session, uint64_t connection) const {
  const auto found = being_destroyed_.lower_bound({session, connection});
  if (found == being_destroyed_.end() || found->first != session) return false;
  return connection == kAll || found->second == connection;
}

// A device may take for ever: that holds up nobody else's.
void RdmaTarget::Destroy(const std::string& session, uint64_t connection) {
  Connections ended;
  {
    const MutexLock lock(mutex_);
    if (const auto of = sessions_.find(session); of != sessions_.end()) {
      if (connection == kAll) {
        ended.swap(of->second);
      } else if (auto one = of->second.extract(connection); !one.empty()) {
        ended.insert(std::move(one));
      }
      if (of->second.empty()) sessions_.erase(of);
    }
    for (const auto& [id, ends] : ended) being_destroyed_.emplace(session, id);
  }
  for (auto& [id, ends] : ended) {
    const size_t pairs = ends->pairs.size();
    ends.reset();
    const MutexLock lock(mutex_);
    pairs_ -= pairs;
    being_destroyed_.erase({session, id});
    destroyed_.NotifyAll();
  }
  MutexLock lock(mutex_);
  while (IsBeingDestroyed(session, connection)) destroyed_.Wait(lock);
}

size_t RdmaTarget::queue_pairs() const {
  const MutexLock lock(mutex_);
  return pairs_;
}

size_t RdmaTarget::connections() const {
  const MutexLock lock(mutex_);
  size_t count = 0;
  for (const auto& [session, connections] : sessions_) count += connections.size();
  return count;
}

}  // namespace gantry::transport
