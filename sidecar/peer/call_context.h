// What a call of a client needs of it: its session, and what ends its calls. Stateless;
// thread-safe.
#pragma once

#include <grpcpp/client_context.h>

#include <string>

#include "lib/base/clock.h"
#include "lib/wire/peer.grpc.pb.h"
#include "sidecar/peer/call_canceller.h"
#include "sidecar/peer/grpc_status.h"

namespace gantry::peer {

struct CallContext {
  v1::Peer::Stub& stub;
  const std::string& session;
  const std::string& authorization;  // empty: none
  CallCanceller& calls;

  void Prepare(TimePoint deadline, grpc::ClientContext* context) const {
    if (!authorization.empty()) context->AddMetadata("authorization", authorization);
    context->set_deadline(GrpcDeadline(deadline));
  }
};

}  // namespace gantry::peer
