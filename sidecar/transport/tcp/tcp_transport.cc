#include "sidecar/transport/tcp/tcp_transport.h"

#include <algorithm>
#include <utility>

#include "sidecar/transport/one_peer.h"
#include "sidecar/transport/tcp/tcp_operation.h"
#include "sidecar/transport/tcp/tcp_remote_buffer.h"

namespace gantry::transport {
namespace {

TcpOptions WithinLimits(TcpOptions options) {
  options.streams_per_peer = std::clamp(options.streams_per_peer, 1, 32);
  options.part_bytes_max =
      std::clamp<uint64_t>(options.part_bytes_max, 4096, kFramePayloadBytesMax);
  options.part_bytes_min = std::clamp<uint64_t>(options.part_bytes_min, 1, options.part_bytes_max);
  options.window_requests = std::max<size_t>(options.window_requests, 1);
  return options;
}

}  // namespace

TcpTransport::TcpTransport(const TcpOptions& options, IoLoops& loops, HelperThreads& helpers,
                           ChannelSecurity* security, std::function<void()> wake,
                           Result<StagingHalf*> staging)
    : staging_(std::move(staging)),
      core_{.options = WithinLimits(options),
            .loops = loops,
            .helpers = helpers,
            .security = security,
            .staging = staging_.value_or(nullptr)} {
  const MutexLock lock(inbox_->mutex);
  inbox_->wake = std::move(wake);
}

TcpTransport::~TcpTransport() {
  std::vector<std::weak_ptr<TcpPeer>> peers;
  {
    const MutexLock lock(peers_mutex_);
    peers.swap(peers_);
  }
  for (const auto& weak : peers) {
    const auto peer = weak.lock();
    if (peer == nullptr) continue;
    peer->Close(Error(ErrorCode::kShuttingDown, "the sidecar is stopping"));
    peer->AwaitClosed();
  }
  std::vector<std::shared_ptr<TcpJob>> jobs;  // end after the lock
  const MutexLock lock(inbox_->mutex);
  inbox_->wake = nullptr;
  jobs.swap(inbox_->jobs);
}

std::shared_ptr<TcpPeer> TcpTransport::AddPeer(std::string name,
                                               std::shared_ptr<TcpStreamOpener> opener) {
  auto peer = std::make_shared<TcpPeer>(core_, std::move(name), std::move(opener));
  const MutexLock lock(peers_mutex_);
  std::erase_if(peers_, [](const auto& weak) { return weak.expired(); });
  peers_.push_back(peer);
  return peer;
}

metrics::TcpConnections TcpTransport::Totals() const {
  const TcpCounts& counts = *core_.counts;
  const uint64_t ended = counts.ended;  // before those that were opened: never more than they
  const uint64_t opened = counts.opened;
  return {opened - ended, opened, counts.failed, 0, 0};
}

Status TcpTransport::CanReach(const memory::MappedAllocation& local,
                              const RemoteAllocation& remote) const {
  if (local.for_workers_only()) {
    const Status staged =
        staging_ ? (*staging_)->copier.Usable(local.kind()) : Fail(staging_.error());
    if (!staged) {
      return Fail(Error(staged.error())
                      .WithContext(local.unsealed() ? "the local buffer's file can shrink"
                                                    : "the local buffer is GPU memory"));
    }
  }
  const TcpRemoteBuffer* const target = TcpRemoteBuffer::Of(remote);
  if (target == nullptr) {
    return Fail(ErrorCode::kPathUnavailable,
                "the remote buffer is not offered over tcp: its peer listens for none, or it is "
                "this sidecar's own");
  }
  if (auto usable = target->peer()->Usable(); !usable) {
    return Fail(ErrorCode::kPathUnavailable, usable.error().message);
  }
  return {};
}

Result<TcpTransport::Route> TcpTransport::RouteOf(const MovePlan& plan) const {
  Route route;
  ASSIGN_OR_RETURN(route.peer, OnePeerOf(plan, path(), &TcpRemoteBuffer::peer));
  for (const auto& local : plan.local) {
    if (local->for_workers_only()) {
      if (!staging_) return Fail(staging_.error());
      route.staging = *staging_;
      route.local.emplace_back();
      continue;
    }
    ASSIGN_OR_RETURN(const std::span<std::byte> bytes, local->in_process().Bytes());
    core_.helpers.Populate(local);
    route.local.push_back(bytes);
  }
  return route;
}

std::unique_ptr<Operation> TcpTransport::Start(std::shared_ptr<const MovePlan> plan, int priority,
                                               uint64_t token) {
  auto route = RouteOf(*plan);
  const uint64_t share =
      plan->bytes / (2 * static_cast<uint64_t>(core_.options.streams_per_peer)) + 1;
  TcpJob::Setup setup;
  setup.part_bytes = std::clamp(share, core_.options.part_bytes_min, core_.options.part_bytes_max);
  setup.plan = std::move(plan);
  setup.priority = priority;
  setup.token = token;
  setup.notify_driver = [inbox = inbox_](std::shared_ptr<TcpJob> job) {
    const MutexLock lock(inbox->mutex);
    if (inbox->wake == nullptr) return;  // a job in an inbox that nobody empties keeps both
    inbox->jobs.push_back(std::move(job));
    inbox->wake();
  };
  setup.call_at = [&loops = core_.loops](TimePoint when, std::function<void()> call) {
    loops.at(0).PostAt(when, std::move(call));
  };
  if (route) {
    setup.local = std::move(route->local);
    setup.staging = route->staging;
  }
  auto job = std::make_shared<TcpJob>(std::move(setup));
  auto operation = std::make_unique<TcpOperation>(job, route ? route->peer : nullptr);
  if (route) {
    route->peer->Submit(job);
  } else {
    job->Fail(std::move(route).error());
  }
  return operation;
}

PollOutcome TcpTransport::Poll(std::vector<uint64_t>* ready_tokens) {
  const bool copied = core_.staging != nullptr && core_.staging->copier.Poll();
  {
    const MutexLock lock(inbox_->mutex);
    updated_.swap(inbox_->jobs);
  }
  const bool any = !updated_.empty();
  for (const auto& job : updated_) {
    if (job->operation != nullptr && job->operation->Update())
      ready_tokens->push_back(job->token());
  }
  updated_.clear();
  return {.progressed = any || copied};
}

}  // namespace gantry::transport
