// An owner that speaks the peer API by hand over TCP, for what PeerServer would never answer: it
// has no buffers, notes which hold uses end, call by call, and executes without an end.
// Thread-safe.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "lib/base/mutex.h"
#include "lib/base/random_id.h"
#include "lib/wire/peer.grpc.pb.h"
#include "lib/wire/peer_execution_messages.h"
#include "lib/wire/peer_messages.h"
#include "sidecar/peer/identity/peer_identity.h"

namespace gantry::testing {

namespace v1 = gantry::peer::v1;

class RawOwner final : public v1::Peer::Service {
 public:
  struct Behaviour {
    std::vector<std::string> capabilities;
    size_t ends_refused = 0;  // the first so many calls, as gRPC does that has no thread for them
  };
  explicit RawOwner(Behaviour behaviour) : behaviour_(std::move(behaviour)) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~RawOwner() override {
    {
      const MutexLock lock(mutex_);
      closed_ = true;
      changed_.NotifyAll();
    }
    server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1));
  }

  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  size_t calls() const {  // of EndHoldUse that were answered
    const MutexLock lock(mutex_);
    return calls_;
  }
  std::set<uint64_t> ended() const {
    const MutexLock lock(mutex_);
    return ended_;
  }
  // Calls of EndHoldUse and Notify wait until it is taken back, or the owner goes.
  void HoldCalls(bool ends, bool notifications) {
    const MutexLock lock(mutex_);
    hold_ends_ = ends;
    hold_notifications_ = notifications;
    changed_.NotifyAll();
  }
  // So many calls of EndExecution are answered: not yet. The others wait for `time`, and fail.
  void RefuseToEndExecutions(size_t pending, milliseconds time) {
    const MutexLock lock(mutex_);
    ends_pending_ = pending;
    ends_time_ = time;
  }
  size_t waiting() const {
    const MutexLock lock(mutex_);
    return waiting_;
  }

  grpc::Status Hello(grpc::ServerContext*, const v1::HelloRequest*,
                     v1::HelloReply* reply) override {
    reply->set_version(wire::kPeerVersions.max);
    reply->set_version_min(wire::kPeerVersions.min);
    reply->set_version_max(wire::kPeerVersions.max);
    wire::ToMessage(self_, reply->mutable_owner());
    for (const std::string& name : behaviour_.capabilities) reply->add_capabilities(name);
    wire::ToMessage(std::vector<wire::PathReport>{{wire::Path::kTcp, false, "by hand"}},
                    reply->mutable_paths());
    return grpc::Status::OK;
  }
  grpc::Status Watch(grpc::ServerContext* context, const v1::WatchRequest*,
                     grpc::ServerWriter<v1::WatchEvent>* writer) override {
    v1::WatchEvent event;
    event.mutable_started()->set_session(RandomToken());
    event.mutable_started()->set_owner_generation(self_.generation);
    event.mutable_started()->set_heartbeat_ms(50);
    MutexLock lock(mutex_);
    while (!closed_ && !context->IsCancelled() && writer->Write(event)) {
      event.mutable_heartbeat();
      changed_.WaitUntil(lock, Clock::now() + milliseconds(50));
    }
    return grpc::Status::OK;
  }
  grpc::Status Ping(grpc::ServerContext*, const v1::PingRequest*, v1::PingReply* reply) override {
    reply->set_owner_generation(self_.generation);
    return grpc::Status::OK;
  }
  grpc::Status Notify(grpc::ServerContext* context, const v1::NotifyRequest*,
                      v1::NotifyReply*) override {
    MutexLock lock(mutex_);
    AwaitLet(lock, *context, hold_notifications_);
    return grpc::Status::OK;
  }
  grpc::Status EndHoldUse(grpc::ServerContext* context, const v1::EndHoldUseRequest* request,
                          v1::EndHoldUseReply*) override {
    MutexLock lock(mutex_);
    AwaitLet(lock, *context, hold_ends_);
    ++calls_;
    if (calls_ <= behaviour_.ends_refused) {
      return {grpc::StatusCode::RESOURCE_EXHAUSTED, "no thread"};
    }
    ended_.insert(request->use());
    // Whoever does not know of `more` does not see it.
    if (behaviour_.capabilities.empty()) return grpc::Status::OK;
    for (const v1::HoldUseEnd& end : request->more()) ended_.insert(end.use());
    return grpc::Status::OK;
  }
  grpc::Status Execute(grpc::ServerContext* context, const v1::ExecuteRequest*,
                       grpc::ServerWriter<v1::ExecuteEvent>* writer) override {
    v1::ExecuteEvent event;
    event.mutable_accepted()->set_path(wire::InfoOf(wire::Path::kTcp).number);
    writer->Write(event);
    MutexLock lock(mutex_);
    AwaitLet(lock, *context, true);
    return grpc::Status::OK;
  }
  grpc::Status EndExecution(grpc::ServerContext*, const v1::EndExecutionRequest*,
                            v1::ExecutionEnded* reply) override {
    MutexLock lock(mutex_);
    if (ends_pending_ > 0) {
      --ends_pending_;
      wire::PeerExecutionEnd pending;
      pending.pending = true;
      wire::ToMessage(pending, reply);
      return grpc::Status::OK;
    }
    const TimePoint until = Clock::now() + ends_time_;
    while (!closed_ && changed_.WaitUntil(lock, until)) {
    }
    return {grpc::StatusCode::UNAVAILABLE, "by hand"};
  }

 private:
  void AwaitLet(MutexLock& lock, const grpc::ServerContext& context, const bool& held)
      REQUIRES(mutex_) {
    ++waiting_;
    while (held && !closed_ && !context.IsCancelled()) {
      changed_.WaitUntil(lock, Clock::now() + milliseconds(20));
    }
    --waiting_;
  }

  const Behaviour behaviour_;
  const peer::PeerIdentity self_{"owner", RandomGeneration(), *peer::ReadNodeId(), "raw"};
  int port_ = 0;
  mutable Mutex mutex_;
  Condition changed_;
  bool closed_ GUARDED_BY(mutex_) = false;
  bool hold_ends_ GUARDED_BY(mutex_) = false;
  bool hold_notifications_ GUARDED_BY(mutex_) = false;
  size_t ends_pending_ GUARDED_BY(mutex_) = 0;
  milliseconds ends_time_ GUARDED_BY(mutex_){0};
  size_t waiting_ GUARDED_BY(mutex_) = 0;
  size_t calls_ GUARDED_BY(mutex_) = 0;
  std::set<uint64_t> ended_ GUARDED_BY(mutex_);
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace gantry::testing
