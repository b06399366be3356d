// How a connection comes to its lanes, and which of them it does without.
#include <algorithm>
#include <map>
#include <span>
#include <utility>

#include "lib/base/log.h"
#include "sidecar/transport/rdma/rdma_connection.h"

namespace gantry::transport {

Result<std::unique_ptr<RdmaConnection>> RdmaConnection::Make(const RdmaDevices& devices,
                                                             const std::vector<RdmaLink>& links,
                                                             QueuePairExchange& exchange,
                                                             TimePoint deadline) {
  if (exchange.peer_devices().empty()) {
    return Fail(ErrorCode::kPathUnavailable, "the peer has no RDMA device");
  }
  std::unique_ptr<RdmaConnection> made(new RdmaConnection());
  RETURN_IF_ERROR(made->MakeLanes(devices, exchange.peer_devices(), links));
  std::vector<wire::QueuePairRequest> requests;
  for (const Lane& lane : made->lanes_) requests.push_back({lane.link.peer_device, lane.address});
  ASSIGN_OR_RETURN(const wire::QueuePairGrant grant, exchange.Connect(requests, deadline));
  made->id_ = grant.connection;
  made->lease_ = milliseconds(grant.lease_ms);
  if (const Status joined = made->Connect(devices, exchange.peer_devices(), grant.ends); !joined) {
    // Else the peer keeps its ends for as long as the session lives.
    if (const Status ended = exchange.End(grant.connection, deadline); !ended) {
      log::Warning("a peer keeps queue pairs that nobody uses", {{"why", ended.error()}});
    }
    return Fail(joined.error());
  }
  return made;
}

Status RdmaConnection::Connect(const RdmaDevices& devices, const PeerDevices& peers,
                               const std::vector<wire::QueuePairAddress>& ends) {
  if (ends.size() != lanes_.size()) {
    return gantry::Fail(ErrorCode::kMalformedBody, "the peer made " + std::to_string(ends.size()) +
                                                       " queue pairs of " +
                                                       std::to_string(lanes_.size()));
  }
  std::map<RdmaLink, Error> failed;
  for (size_t i = 0; i < ends.size(); ++i) {
    Lane& lane = lanes_[i];
    lane.peer = ends[i];
    if (failed.contains(lane.link)) continue;
    if (ends[i].number == 0) {
      failed.try_emplace(
          lane.link, ErrorCode::kPathUnavailable,
          "the peer's RDMA device " + peers[lane.link.peer_device].name + " makes no queue pairs",
          "the peer's log says why");
      continue;
    }
    const QueuePairOptions options = devices.QueuePairOptionsOf(lane.link.device, lane.gid);
    Status joined = lane.pair->Connect(lane.address, ends[i], options);
    if (!joined) failed.try_emplace(lane.link, std::move(joined).error());
  }
  for (auto& [link, why] : failed) LeaveOut(link, std::move(why));
  return CheckAny();
}

void RdmaConnection::LeaveOut(const RdmaLink& link, Error why) {
  std::erase_if(lanes_, [&link](const Lane& lane) {
    if (lane.link != link) return false;
    lane.counters->queue_pairs.fetch_sub(1, std::memory_order_relaxed);
    return true;
  });
  std::erase_if(parts_, [&link](const Part& part) { return part.link == link; });
  left_out_.insert({link, std::move(why)});
}

Status RdmaConnection::CheckAny() const {
  if (!lanes_.empty()) return {};
  if (!left_out_.empty()) return gantry::Fail(left_out_.begin()->second);
  return gantry::Fail(ErrorCode::kPathUnavailable, "no RDMA device here has an active port",
                      "check cable and switch");
}

Status RdmaConnection::MakeLanes(const RdmaDevices& devices, const PeerDevices& peers,
                                 const std::vector<RdmaLink>& links) {
  for (const RdmaLink& link : links) {
    if (!devices.IsUp(link.device)) continue;
    Status made = MakeLanesOn(link, devices, peers);
    if (!made) LeaveOut(link, std::move(made).error());
  }
  return CheckAny();
}

Status RdmaConnection::MakeLanesOn(const RdmaLink& link, const RdmaDevices& devices,
                                   const PeerDevices& peers) {
  const auto pairs = static_cast<uint32_t>(devices.options().queue_pairs);
  ASSIGN_OR_RETURN(const GidEntry gid,
                   devices.at(link.device).peer_gids->For(peers[link.peer_device].gid));
  QueuePairOptions options = devices.QueuePairOptionsOf(link.device, gid);
  options.inline_bytes = devices.options().inline_bytes;
  VerbsDevice& nic = *devices.at(link.device).device;
  Part& part = parts_.emplace_back();
  part.link = link;
  ASSIGN_OR_RETURN(part.queue, nic.CreateCompletionQueue(pairs * options.work_requests));
  RegionAccess access;
  access.local_write = true;
  ASSIGN_OR_RETURN(part.flushed,
                   nic.Register(std::as_writable_bytes(std::span(&flushed_, 1)), access));
  for (uint32_t i = 0; i < pairs; ++i) {
    Lane lane;
    lane.link = link;
    lane.device_name = nic.name();
    lane.counters = devices.at(link.device).counters.get();
    ASSIGN_OR_RETURN(lane.pair, nic.CreateQueuePair(*part.queue, options));
    lane.gid = gid;
    lane.address = devices.AddressOf(link.device, *lane.pair, gid);
    lane.room = options.work_requests;
    lane.inline_bytes = std::min(options.inline_bytes, lane.pair->inline_bytes());
    if (lane.inline_bytes < options.inline_bytes)
      devices.SayInlineBytes(link.device, lane.inline_bytes);
    lane.flush_key = part.flushed->local_key();
    lane.counters->queue_pairs.fetch_add(1, std::memory_order_relaxed);
    lanes_.push_back(std::move(lane));
  }
  return {};
}

}  // namespace gantry::transport
