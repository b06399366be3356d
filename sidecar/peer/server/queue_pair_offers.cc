#include "sidecar/peer/server/queue_pair_offers.h"

#include "lib/wire/rdma_messages.h"

namespace gantry::peer {

void QueuePairOffers::AddDevices(v1::HelloReply* reply) const { wire::ToMessage(devices_, reply); }

Status QueuePairOffers::Connect(const v1::ConnectQueuePairsRequest& request, bool over_tcp,
                                v1::ConnectQueuePairsReply* reply) const {
  RETURN_IF_ERROR(initiators_.InitiatorOf(request.session(), over_tcp));
  if (target_ == nullptr) {
    return Fail(ErrorCode::kPathUnavailable, "this sidecar uses no RDMA device");
  }
  ASSIGN_OR_RETURN(const auto requests, wire::FromMessage(request));
  ASSIGN_OR_RETURN(const auto grant,
                   target_->Connect(request.session(), requests, request.some_may_fail()));
  // One that ended meanwhile may have been looked through before this was there.
  if (auto open = initiators_.InitiatorOf(request.session(), over_tcp); !open) {
    target_->End(request.session());
    return Fail(std::move(open).error());
  }
  wire::ToMessage(grant, reply);
  return {};
}

Status QueuePairOffers::End(const v1::EndQueuePairsRequest& request, bool over_tcp) const {
  RETURN_IF_ERROR(initiators_.InitiatorOf(request.session(), over_tcp));
  if (target_ != nullptr) target_->EndConnection(request.session(), request.connection());
  return {};
}

void QueuePairOffers::EndSession(const std::string& session) const {
  if (target_ != nullptr) target_->End(session);
}

void QueuePairOffers::Hide(wire::PeerBuffer* buffer) {
  // Without chunks its owner stages it, who checks each request.
  const bool staged = buffer->rdma_chunks.empty();
  buffer->rdma_chunks.clear();
  buffer->rdma_devices.clear();
  for (const wire::Path path : {wire::Path::kRdma, wire::Path::kBounce}) {
    wire::PathReport& report = buffer->paths[static_cast<size_t>(path)];
    if (!report.available || (staged && path == wire::Path::kBounce)) continue;
    report = {path, false, "the buffer's keys grant more than this peer may"};
  }
}

}  // namespace gantry::peer
