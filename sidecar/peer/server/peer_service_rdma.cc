// The part of PeerService for what RDMA devices need of the owner: its ends of queue pairs, and
// staging memory.
#include "sidecar/peer/server/peer_service.h"

namespace gantry::peer {

grpc::Status PeerService::ConnectQueuePairs(grpc::ServerContext* context,
                                            const v1::ConnectQueuePairsRequest* request,
                                            v1::ConnectQueuePairsReply* reply) {
  return Admitted(*context, [&](const PeerGrant&) {
    return queue_pairs_.Connect(*request, over_tcp(), reply);
  });
}

grpc::Status PeerService::EndQueuePairs(grpc::ServerContext* context,
                                        const v1::EndQueuePairsRequest* request,
                                        v1::EndQueuePairsReply*) {
  return Admitted(*context,
                  [&](const PeerGrant&) { return queue_pairs_.End(*request, over_tcp()); });
}

grpc::Status PeerService::OpenStage(grpc::ServerContext* context,
                                    const v1::OpenStageRequest* request,
                                    v1::OpenStageReply* reply) {
  return Admitted(*context,
                  [&](const PeerGrant&) { return stages_.Open(*request, over_tcp(), reply); });
}

grpc::Status PeerService::CloseStage(grpc::ServerContext* context,
                                     const v1::CloseStageRequest* request, v1::CloseStageReply*) {
  return Admitted(*context, [&](const PeerGrant&) { return stages_.Close(*request, over_tcp()); });
}

grpc::Status PeerService::CopyStaged(grpc::ServerContext* context,
                                     const v1::CopyStagedRequest* request,
                                     v1::CopyStagedReply* reply) {
  // Nobody waits for it any more, and counts on what is not begun by then.
  if (context->IsCancelled()) return grpc::Status::CANCELLED;
  return Admitted(*context,
                  [&](const PeerGrant&) { return stages_.Copy(*request, over_tcp(), reply); });
}

}  // namespace gantry::peer
