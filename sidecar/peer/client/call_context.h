// The session state that a client's calls need, and helpers for unary calls. Stateless;
// thread-safe.
#pragma once

#include <grpcpp/client_context.h>

#include <string>
#include <utility>

#include "lib/base/clock.h"
#include "lib/base/result.h"
#include "lib/rpc/grpc_deadline.h"
#include "lib/wire/peer.grpc.pb.h"
#include "sidecar/peer/client/call_canceller.h"
#include "sidecar/peer/identity/grpc_status.h"

namespace gantry::peer {

// The stub's method of a unary call.
template <typename Request, typename Reply>
using PeerMethod = grpc::Status (v1::Peer::Stub::*)(grpc::ClientContext*, const Request&, Reply*);

struct CallContext {
  v1::Peer::Stub& stub;
  const std::string& session;
  const std::string& authorization;  // empty: none
  CallCanceller& calls;

  void Prepare(TimePoint deadline, grpc::ClientContext* context) const {
    if (!authorization.empty()) context->AddMetadata("authorization", authorization);
    context->set_deadline(rpc::GrpcDeadline(deadline));
  }
  // `context` must be new; afterwards it tells who answered.
  template <typename Request, typename Reply>
  Status Call(PeerMethod<Request, Reply> method, const Request& request, Reply* reply,
              TimePoint deadline, grpc::ClientContext* context) const {
    const CallCanceller::Call call(calls, *context);
    Prepare(deadline, context);
    const grpc::Status status = (stub.*method)(context, request, reply);
    if (status.ok()) return {};
    return Fail(FromGrpcStatus(status));
  }
  // Call, with the session set in the request.
  template <typename Request, typename Reply>
  Result<Reply> Call(PeerMethod<Request, Reply> method, Request request, TimePoint deadline) const {
    request.set_session(session);
    Reply reply;
    grpc::ClientContext context;
    RETURN_IF_ERROR(Call(method, request, &reply, deadline, &context));
    return reply;
  }
};

}  // namespace gantry::peer
