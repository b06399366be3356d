#include "deviceplugin/kubelet_link.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "deviceplugin/abandoned_socket.h"
#include "deviceplugin/folder_watch.h"
#include "lib/base/fd_passing.h"
#include "lib/base/log.h"
#include "lib/base/mutex.h"
#include "lib/base/thread.h"
#include "lib/rpc/bounded_listener.h"
#include "lib/rpc/grpc_deadline.h"
#include "lib/rpc/grpc_threads.h"

namespace gantry::deviceplugin {
namespace {

namespace fs = std::filesystem;

constexpr char kApiVersion[] = "v1beta1";
constexpr char kKubeletSocket[] = "kubelet.sock";
constexpr milliseconds kStopMax{1'000};
constexpr mode_t kSocketMode = 0600;  // the kubelet is root, too
constexpr int kBacklog = 16;

// Tells one file from another of the same name, also where the number of an inode is used again.
struct FileIdentity {
  dev_t device = 0;
  ino_t inode = 0;
  int64_t changed_ns = 0;

  bool operator==(const FileIdentity&) const = default;
};

std::optional<FileIdentity> IdentityOf(const std::string& path) {
  struct stat file = {};
  if (::lstat(path.c_str(), &file) != 0) return std::nullopt;
  return FileIdentity{file.st_dev, file.st_ino,
                      int64_t{file.st_ctim.tv_sec} * 1'000'000'000 + file.st_ctim.tv_nsec};
}

// Of all sockets of this resource.
std::string PrefixOf(const KubeletLinkOptions& options) {
  return "gantry-" + options.resource.substr(options.resource.find('/') + 1) + "-";
}

constexpr int kSocketsMax = 999'999;  // of one plugin: then they begin anew

std::string SocketPath(const KubeletLinkOptions& options, int number) {
  return options.folder + "/" + PrefixOf(options) + options.instance + "-" +
         std::to_string(number) + ".sock";
}

class Link final : public KubeletLink {
 public:
  Link(KubeletLinkOptions options, const PluginService::Parts& parts)
      : options_(std::move(options)),
        parts_(parts),
        kubelet_socket_(options_.folder + "/" + kKubeletSocket),
        prefix_(PrefixOf(options_)),
        watch_(options_.folder) {}

  ~Link() override {
    {
      const MutexLock lock(mutex_);
      stopping_ = true;
      if (asks_ != nullptr) asks_->TryCancel();
    }
    watch_.Wake();
    if (thread_.joinable()) thread_.join();
    StopServing();
  }

  Status Begin() {
    ASSIGN_OR_RETURN(thread_, StartThread("gantry-kubelet", [this] { Run(); }));
    return {};
  }
  bool registered() const override { return registered_; }

 private:
  // What a look at the kubelet says is to be done.
  enum class Need { kNothing, kRegistration, kKubelet };

  void Run() {
    RemoveAbandonedSockets();
    while (!stopping_) {
      const auto kubelet = IdentityOf(kubelet_socket_);
      if (OtherHasGone()) registered_with_.reset();
      const Need need = NeedNow(kubelet);
      SetRegistered(need == Need::kNothing && service_ != nullptr && service_->followed());
      if (kubelet != tried_) {  // a new kubelet need not wait for an old one's sake
        tried_ = kubelet;
        ResetPause();
      }
      if (need == Need::kRegistration && Clock::now() >= not_before_) {
        if (registered_since_ && Clock::now() - *registered_since_ > options_.retry_max)
          ResetPause();
        Register(*kubelet);
        // After a success, too: a kubelet that stops following at once is not asked at once.
        not_before_ = Clock::now() + Jittered(pause_);
        pause_ = std::min(pause_ * 2, options_.retry_max);
        continue;
      }
      watch_.Wait(NextLook(need));
    }
  }

  void ResetPause() {
    pause_ = options_.retry_min;
    not_before_ = Clock::now();
  }

  Need NeedNow(const std::optional<FileIdentity>& kubelet) const {
    if (!kubelet) return Need::kKubelet;
    if (service_ == nullptr || kubelet != registered_with_) return Need::kRegistration;
    if (!IdentityOf(socket_)) return Need::kRegistration;
    if (service_->followed()) return Need::kNothing;
    const bool may_come = !service_->was_followed() && Clock::now() < follow_by_;
    return may_come ? Need::kNothing : Need::kRegistration;
  }

  TimePoint NextLook(Need need) const {
    TimePoint next = Clock::now() + options_.poll;
    if (need == Need::kRegistration) next = std::min(next, not_before_);
    // What is not followed yet: the stream's begin wakes nobody.
    if (need == Need::kNothing && !registered_) next = std::min(next, Clock::now() + kLookSoon);
    if (!others_seen_.empty()) next = std::min(next, Clock::now() + options_.goodbye_wait);
    return next;
  }

  // A plugin of this resource that was here beside this one, as after an update with a surge. What
  // the kubelet hears last of it may be its end, and kubelets before 1.36 take that for this one's:
  // none of the slots can be had until this one registers again.
  bool OtherHasGone() {
    const TimePoint now = Clock::now();
    for (const std::string& other : OtherInstances()) others_seen_[other] = now;
    return std::erase_if(others_seen_, [&](const auto& other) {
             return now - other.second >= options_.goodbye_wait;
           }) > 0;
  }

  std::vector<std::string> OtherInstances() const {
    std::vector<std::string> others;
    ForEachSocket([&](const fs::path& path) {
      const std::string name = path.filename().string().substr(prefix_.size());
      const std::string instance = name.substr(0, name.rfind('-'));
      if (instance != options_.instance && !IsAbandonedSocket(path)) others.push_back(instance);
    });
    return others;
  }

  void Register(const FileIdentity& kubelet) {
    StopServing();
    const Status served = Serve();
    const Status registered = served ? RegisterWithKubelet() : served;
    parts_.metrics.Registered(registered.has_value());
    if (!registered) {
      log::Warning("the plugin is not registered",
                   {{"error", registered.error()}, {"hint", registered.error().hint}});
      StopServing();
      return;
    }
    registered_with_ = kubelet;
    follow_by_ = Clock::now() + follow_wait_;
    follow_wait_ = std::min(follow_wait_ * 2, options_.follow_max);
    log::Info("the plugin is registered", {{"resource", options_.resource}, {"socket", socket_}});
  }

  Status Serve() {
    sockets_made_ = sockets_made_ % kSocketsMax + 1;
    socket_ = SocketPath(options_, sockets_made_);
    service_ = std::make_unique<PluginService>(parts_, [this] { watch_.Wake(); });
    auto socket = ListenUnix(socket_, SOCK_STREAM | SOCK_NONBLOCK, kSocketMode, kBacklog);
    if (!socket) {
      return Fail(
          ErrorCode::kInternal,
          "no socket can be served at " + socket_ + ": " + socket.error().message,
          "--kubelet-dir must be the kubelet's folder of device plugins, mounted for writing");
    }
    std::vector<UniqueFd> listeners;
    listeners.push_back(*std::move(socket));
    rpc::BoundedListener::Options bounds;
    bounds.what = "the kubelet";
    bounds.old_ones_stay = true;  // its watch is a call
    bounds.needs_threads = true;
    listener_ = std::make_unique<rpc::BoundedListener>(
        std::move(bounds), std::move(listeners), [](int listener) {
          return UniqueFd(::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
        });
    grpc::ServerBuilder builder;
    listener_->AddTo(&builder, grpc::InsecureServerCredentials());
    builder.RegisterService(service_.get());
    ASSIGN_OR_RETURN(
        server_, rpc::StartServer("the server for the kubelet", rpc::kSyncServerThreads, &builder));
    return listener_->Start();
  }

  void StopServing() {
    if (service_ != nullptr) service_->Stop();
    if (listener_ != nullptr) listener_->Stop();
    if (server_ != nullptr) {
      server_->Shutdown(rpc::GrpcDeadline(Clock::now() + kStopMax));
      server_->Wait();
      ::unlink(socket_.c_str());
    }
    server_.reset();
    listener_.reset();
    service_.reset();
    registered_with_.reset();
    SetRegistered(false);
  }

  // The kubelet calls the server back before it answers: the server's threads are others.
  Status RegisterWithKubelet() {
    const auto channel = grpc::CreateCustomChannel("unix://" + kubelet_socket_,
                                                   grpc::InsecureChannelCredentials(), Fresh());
    const auto stub = v1beta1::Registration::NewStub(channel);
    v1beta1::RegisterRequest request;
    request.set_version(kApiVersion);
    request.set_endpoint(fs::path(socket_).filename());
    request.set_resource_name(options_.resource);
    request.mutable_options()->set_pre_start_required(parts_.binding == Binding::kCdi);
    grpc::ClientContext context;
    context.set_deadline(rpc::GrpcDeadline(Clock::now() + options_.register_max));
    v1beta1::Empty reply;
    SetAsks(&context);
    const grpc::Status status = stub->Register(&context, request, &reply);
    SetAsks(nullptr);
    if (status.ok()) return {};
    return Fail(ErrorCode::kPeerUnavailable,
                "the kubelet at " + kubelet_socket_ + " does not register " + options_.resource +
                    ": " + status.error_message(),
                "its log says why, if it was there; this is tried again");
  }

  // What the destructor cancels.
  void SetAsks(grpc::ClientContext* context) EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    asks_ = context;
    if (context != nullptr && stopping_) context->TryCancel();
  }

  // Channels to one address share a connection, whose pause after a failure would be waited for.
  static grpc::ChannelArguments Fresh() {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return arguments;
  }

  milliseconds Jittered(milliseconds time) {
    std::uniform_int_distribution<int64_t> spread(time.count() / 2, time.count());
    return milliseconds(spread(random_));
  }

  void SetRegistered(bool registered) {
    if (registered_.exchange(registered) == registered) return;
    registered_since_ = registered ? std::optional(Clock::now()) : registered_since_;
    if (registered) follow_wait_ = options_.follow_min;
    parts_.metrics.SetKubeletConnected(registered);
  }

  // Of earlier plugins of this resource that were killed.
  void RemoveAbandonedSockets() const {
    ForEachSocket([](const fs::path& path) {
      if (IsAbandonedSocket(path)) ::unlink(path.c_str());
    });
  }

  // Of plugins of this resource.
  void ForEachSocket(const std::function<void(const fs::path&)>& use) const {
    std::error_code error;
    for (fs::directory_iterator entry(options_.folder, error), end; !error && entry != end;
         entry.increment(error)) {
      if (entry->path().filename().string().starts_with(prefix_)) use(entry->path());
    }
  }

  static constexpr milliseconds kLookSoon{50};

  const KubeletLinkOptions options_;
  const PluginService::Parts parts_;
  const std::string kubelet_socket_;
  const std::string prefix_;  // of the names of our sockets
  FolderWatch watch_;

  // Of the thread, and of the destructor after it.
  std::mt19937_64 random_{std::random_device{}()};
  std::string socket_;
  int sockets_made_ = 0;
  std::unique_ptr<PluginService> service_;  // outlives the server
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<rpc::BoundedListener> listener_;
  std::optional<FileIdentity> registered_with_;
  std::optional<FileIdentity> tried_;
  std::map<std::string, TimePoint> others_seen_;  // by their instances
  TimePoint follow_by_;
  milliseconds follow_wait_ = options_.follow_min;
  std::optional<TimePoint> registered_since_;
  milliseconds pause_ = options_.retry_min;
  TimePoint not_before_;

  std::atomic<bool> registered_ = false;
  std::atomic<bool> stopping_ = false;
  Mutex mutex_;
  grpc::ClientContext* asks_ GUARDED_BY(mutex_) = nullptr;
  std::jthread thread_;  // last: it uses all of them
};

}  // namespace

Result<std::unique_ptr<KubeletLink>> KubeletLink::Start(KubeletLinkOptions options,
                                                        const PluginService::Parts& parts) {
  constexpr size_t kBytesMax = sizeof(sockaddr_un::sun_path) - 1;
  const std::string longest = SocketPath(options, kSocketsMax);
  if (longest.size() > kBytesMax) {
    return Fail(ErrorCode::kInvalidArgument,
                "the plugin's socket " + longest + " has " + std::to_string(longest.size()) +
                    " bytes; a Unix socket takes " + std::to_string(kBytesMax),
                "choose a shorter --resource, --instance or --kubelet-dir");
  }
  auto link = std::make_unique<Link>(std::move(options), parts);
  RETURN_IF_ERROR(link->Begin());
  return std::unique_ptr<KubeletLink>(std::move(link));
}

}  // namespace gantry::deviceplugin
