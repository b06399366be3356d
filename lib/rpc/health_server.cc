#include "lib/rpc/health_server.h"

#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <initializer_list>
#include <optional>
#include <thread>
#include <utility>

#include "lib/base/host_port.h"
#include "lib/base/log.h"
#include "lib/base/log_rate_limiter.h"
#include "lib/base/mutex.h"
#include "lib/base/thread.h"
#include "lib/rpc/bounded_listener.h"
#include "lib/rpc/grpc_deadline.h"
#include "lib/rpc/grpc_threads.h"

namespace gantry::rpc {
namespace {

constexpr char kReadiness[] = "readiness";
constexpr char kLiveness[] = "liveness";
constexpr size_t kMemoryBytesMax = 16 << 20;
constexpr int kMessageBytesMax = 4096;
constexpr int kStreamsPerConnectionMax = 16;
constexpr int kThreadsMax = 16;
constexpr milliseconds kShutdownMax{200};

using Services = std::initializer_list<const char*>;

class GrpcHealthServer final : public HealthServer {
 public:
  explicit GrpcHealthServer(HealthServerOptions options) : options_(std::move(options)) {}
  ~GrpcHealthServer() override {
    if (listener_ != nullptr) listener_->Stop();
    if (server_ != nullptr) {
      server_->GetHealthCheckService()->Shutdown();
      server_->Shutdown(GrpcDeadline(Clock::now() + kShutdownMax));
    }
    if (queue_ == nullptr) return;
    queue_->Shutdown();
    if (poller_.joinable()) poller_.join();
    void* tag = nullptr;
    bool ok = false;
    while (queue_->Next(&tag, &ok)) {
    }
  }

  Status Run() {
    ASSIGN_OR_RETURN(listening_, ParseHostPort(options_.listen));
    grpc::EnableDefaultHealthCheckService(true);  // the peer API's servers say that they have none
    grpc::ResourceQuota quota("health");
    quota.Resize(kMemoryBytesMax);
    quota.SetMaxThreads(kThreadsMax);
    grpc::ServerBuilder builder;
    builder.SetResourceQuota(quota);
    builder.SetMaxReceiveMessageSize(kMessageBytesMax);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kStreamsPerConnectionMax);
    auto listener = BoundedListener::Listen(
        {.what = "health", .connections_max = options_.connections_max}, &listening_);
    if (!listener) {
      return Fail(ErrorCode::kInvalidArgument,
                  "health is not served on " + options_.listen + ": " + listener.error().message,
                  "choose an address of this host and a port that is free");
    }
    listener_ = *std::move(listener);
    listener_->AddTo(&builder, grpc::InsecureServerCredentials());
    queue_ = builder.AddCompletionQueue();
    ASSIGN_OR_RETURN(server_, StartServer("the health service", HealthServerThreads(), &builder));
    RETURN_IF_ERROR(listener_->Start());
    Publish();
    ASSIGN_OR_RETURN(poller_, StartThread("gantry-health", [this] { Poll(); }));
    log::Info("health is served", {{"address", address()}});
    return {};
  }

  std::string address() const override { return listening_.Text(); }
  void Refresh() override { Publish(); }

 private:
  void Publish() EXCLUDES(publishing_) {
    const MutexLock lock(publishing_);  // an older look must not come last
    const bool alive = IsAlive();
    Publish(&published_alive_, alive, {kLiveness});
    Publish(&published_ready_, alive && options_.ready().has_value(), {"", kReadiness});
  }
  void Publish(std::optional<bool>* published, bool serves, Services services)
      REQUIRES(publishing_) {
    if (*published == serves) return;  // gRPC would say it to watchers again
    *published = serves;
    for (const char* service : services) {
      server_->GetHealthCheckService()->SetServingStatus(service, serves);
    }
  }
  bool IsAlive() const {
    if (!options_.alive) return true;
    const Status alive = options_.alive();
    if (alive) return true;
    if (limiter_.Pass()) log::Error("the process stands still", {{"error", alive.error()}});
    return false;
  }

  // The server has no calls of its own that would keep it polling: this thread does, until the end.
  void Poll() {
    void* tag = nullptr;
    bool ok = false;
    TimePoint next = Clock::now() + options_.look_again;
    while (queue_->AsyncNext(&tag, &ok, GrpcDeadline(next)) !=
           grpc::CompletionQueue::NextStatus::SHUTDOWN) {
      if (Clock::now() < next) continue;
      Publish();
      next = Clock::now() + options_.look_again;
    }
  }

  const HealthServerOptions options_;
  mutable log::RateLimiter limiter_;
  Mutex publishing_;
  std::optional<bool> published_alive_ GUARDED_BY(publishing_);
  std::optional<bool> published_ready_ GUARDED_BY(publishing_);
  HostPort listening_;
  std::unique_ptr<grpc::ServerCompletionQueue> queue_;  // outlives the server
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<BoundedListener> listener_;
  std::jthread poller_;
};

}  // namespace

Result<std::unique_ptr<HealthServer>> HealthServer::Start(HealthServerOptions options) {
  auto server = std::make_unique<GrpcHealthServer>(std::move(options));
  RETURN_IF_ERROR(server->Run());
  return std::unique_ptr<HealthServer>(std::move(server));
}

}  // namespace gantry::rpc
