#include "sidecar/transport/rdma/rdma_target.h"

#include <optional>
#include <utility>

#include "lib/base/log.h"

namespace gantry::transport {
namespace {

constexpr uint32_t kNothingIsPosted = 16;
constexpr uint64_t kAll = 0;  // no connection has this number

}  // namespace

Result<wire::QueuePairGrant> RdmaTarget::Connect(const std::string& session,
                                                 std::span<const wire::QueuePairRequest> requests,
                                                 bool some_may_fail) {
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
  auto made = Make(requests, some_may_fail, &grant.ends);
  const MutexLock lock(mutex_);
  being_made_.erase(being_made_.find(session));
  if (!made) {
    pairs_ -= requests.size();
    return Fail(std::move(made).error());
  }
  pairs_ -= requests.size() - (*made)->pairs.size();
  grant.connection = ++last_connection_;
  grant.lease_ms = static_cast<uint32_t>(devices_.options().lease.count());
  sessions_[session].emplace(grant.connection, *std::move(made));
  return grant;
}

Result<std::shared_ptr<RdmaTarget::Ends>> RdmaTarget::Make(
    std::span<const wire::QueuePairRequest> requests, bool some_may_fail,
    std::vector<wire::QueuePairAddress>* addresses) {
  std::set<uint32_t> devices;
  for (const wire::QueuePairRequest& request : requests) {
    if (request.device >= devices_.size()) {
      return Fail(ErrorCode::kNotFound, "there is no RDMA device " +
                                            std::to_string(request.device) + " here, of " +
                                            std::to_string(devices_.size()));
    }
    devices.insert(request.device);
  }
  auto ends = std::make_shared<Ends>();
  addresses->resize(requests.size());
  std::optional<Error> why;
  for (const uint32_t device : devices) {
    const Status made = MakeOn(device, requests, ends.get(), addresses);
    SayWhetherItWorks(device, made);
    if (made) continue;
    if (!some_may_fail) return Fail(made.error());
    why = made.error();
  }
  if (why && ends->pairs.empty()) return Fail(*std::move(why));
  return ends;
}

Status RdmaTarget::MakeOn(uint32_t index, std::span<const wire::QueuePairRequest> requests,
                          Ends* ends, std::vector<wire::QueuePairAddress>* addresses) {
  VerbsDevice& device = *devices_.at(index).device;
  ASSIGN_OR_RETURN(auto queue, device.CreateCompletionQueue(kNothingIsPosted));
  std::map<size_t, std::unique_ptr<VerbsQueuePair>> pairs;  // go before the queue
  std::map<size_t, wire::QueuePairAddress> told;            // by the request
  std::map<wire::Gid, GidEntry> gids;                       // by the peer's
  for (size_t i = 0; i < requests.size(); ++i) {
    if (requests[i].device != index) continue;
    const wire::Gid& peer = requests[i].from.gid;
    if (!gids.contains(peer)) {
      ASSIGN_OR_RETURN(gids[peer], devices_.at(index).peer_gids->For(peer));
    }
    const GidEntry& gid = gids[peer];
    QueuePairOptions options = devices_.QueuePairOptionsOf(index, gid);
    options.remote_read = options.remote_write = true;  // as far as keys were told
    ASSIGN_OR_RETURN(auto pair, device.CreateQueuePair(*queue, options));
    QueuePairAddress address = devices_.AddressOf(index, *pair, gid);
    RETURN_IF_ERROR(AddFlush(index, &address));
    RETURN_IF_ERROR(pair->Connect(address, requests[i].from, options));
    pairs.emplace(i, std::move(pair));
    told.emplace(i, address);
  }
  for (const auto& [i, address] : told) (*addresses)[i] = address;
  for (auto& [i, pair] : pairs) ends->pairs.push_back(std::move(pair));
  ends->queues.push_back(std::move(queue));
  return {};
}

// Once, however often peers ask.
void RdmaTarget::SayWhetherItWorks(uint32_t device, const Status& made) {
  const std::string& name = devices_.at(device).device->name();
  const MutexLock lock(mutex_);
  if (made) {
    if (failing_.erase(device) != 0) {
      log::Info("an RDMA device makes queue pairs for peers again", {{"device", name}});
    }
  } else if (failing_.insert(device).second) {
    log::Warning("an RDMA device makes no queue pairs for peers",
                 {{"device", name}, {"why", made.error()}});
  }
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
