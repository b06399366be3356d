#include "sidecar/transport/rdma/rdma_transport.h"

#include <algorithm>
#include <utility>

#include "lib/base/log.h"
#include "sidecar/transport/one_peer.h"

namespace gantry::transport {
void RdmaTransport::Inbox::Post(std::function<void()> task) {
  const MutexLock lock(mutex);
  if (wake == nullptr) return;  // what it holds goes with it
  tasks.push_back(std::move(task));
  wake();
}

RdmaTransport::RdmaTransport(const RdmaDevices& devices, RdmaEvents& events, HelperThreads& helpers,
                             std::function<void()> wake,
                             std::function<void(const Error& why)> count_error)
    : devices_(devices),
      events_(events),
      core_{.devices = devices,
            .helpers = helpers,
            .post = [inbox = inbox_](std::function<void()> task) { inbox->Post(std::move(task)); },
            .post_at =
                [inbox = inbox_, &events](TimePoint when, std::function<void()> task) {
                  events.CallAt(when, [inbox, task = std::move(task)] { inbox->Post(task); });
                },
            .watch = [this](RdmaConnection& connection) { return Watch(connection); },
            .unwatch = [this](RdmaConnection& connection) { Unwatch(connection); },
            .count_error = std::move(count_error)} {
  {
    const MutexLock lock(inbox_->mutex);
    inbox_->wake = std::move(wake);
  }
  for (size_t i = 0; i < devices_.size(); ++i) {
    const Status watched =
        events_.Watch(devices_.at(i).device->event_fd(), [&devices, i, inbox = inbox_] {
          devices.TakeEvents(i);
          inbox->Post([] {});  // what is in flight there may never say anything again
        });
    if (!watched) log::Warning("a device's events are not seen", {{"why", watched.error()}});
  }
}

RdmaTransport::~RdmaTransport() {
  for (size_t i = 0; i < devices_.size(); ++i) {
    events_.Ignore(devices_.at(i).device->event_fd());
  }
  std::vector<std::shared_ptr<RdmaPeer>> peers;
  {
    const MutexLock lock(peers_mutex_);
    for (const auto& weak : peers_) {
      if (auto peer = weak.lock()) peers.push_back(std::move(peer));
    }
  }
  for (const auto& peer : peers) peer->Close(Error(ErrorCode::kShuttingDown, "it is stopping"));
  // Connections that are being made come to their end by tasks.
  while (std::any_of(peers.begin(), peers.end(),
                     [](const auto& peer) { return peer->holds_memory(); })) {
    if (!RunTasks()) std::this_thread::sleep_for(milliseconds(1));
  }
  std::vector<std::function<void()>> tasks;  // end after the lock
  const MutexLock lock(inbox_->mutex);
  inbox_->wake = nullptr;
  tasks.swap(inbox_->tasks);
}

std::shared_ptr<RdmaPeer> RdmaTransport::AddPeer(std::string name,
                                                 std::shared_ptr<QueuePairExchange> exchange) {
  auto peer = std::make_shared<RdmaPeer>(core_, std::move(name), std::move(exchange));
  const MutexLock lock(peers_mutex_);
  std::erase_if(peers_, [](const auto& weak) { return weak.expired(); });
  peers_.push_back(peer);
  return peer;
}

Status RdmaTransport::CanCarry(const LocalSide& local,
                               const std::vector<RemoteAllocation>& /*remote*/) const {
  if (local.why_not_on_nics) {
    return Fail(ErrorCode::kPathUnavailable,
                "RDMA devices do not have the local buffer: " + local.why_not_on_nics->message);
  }
  for (const auto& nic_memory : local.nic_memory) RETURN_IF_ERROR(CanGoThrough(*nic_memory));
  return {};
}

Status RdmaTransport::CanGoThrough(const memory::NicMemory& nic_memory) const {
  const auto* const set = dynamic_cast<const MemoryRegionSet*>(&nic_memory);
  if (set == nullptr) return Fail(ErrorCode::kInternal, "a buffer is registered on other devices");
  if ((set->devices() & devices_.Up()).empty()) return Fail(devices_.NoneUpOf(set->devices()));
  return {};
}

Status RdmaTransport::CanReach(const memory::MappedAllocation& /*local*/,
                               const RemoteAllocation& remote) const {
  const RdmaRemoteBuffer* const target = RdmaRemoteBuffer::Of(remote);
  if (target == nullptr) {
    return Fail(ErrorCode::kPathUnavailable,
                "the remote buffer is not registered on RDMA devices that lead here");
  }
  if (auto usable = target->peer()->Usable(); !usable) {
    return Fail(ErrorCode::kPathUnavailable, usable.error().message);
  }
  return {};
}

std::unique_ptr<Operation> RdmaTransport::Start(std::shared_ptr<const MovePlan> plan, int priority,
                                                uint64_t token) {
  return Begin(std::move(plan), priority, token, nullptr);
}

std::unique_ptr<Operation> RdmaTransport::StartPart(std::shared_ptr<const MovePlan> plan,
                                                    int priority,
                                                    std::function<void()> notify_driver) {
  return Begin(std::move(plan), priority, 0, std::move(notify_driver));
}

std::unique_ptr<Operation> RdmaTransport::Begin(std::shared_ptr<const MovePlan> plan, int priority,
                                                uint64_t token,
                                                std::function<void()> notify_driver) {
  auto peer = OnePeerOf(*plan, path(), &RdmaRemoteBuffer::peer);
  RdmaOperation::Setup setup;
  setup.plan = std::move(plan);
  setup.token = token;
  setup.notify_driver = std::move(notify_driver);
  if (!peer) {
    setup.refusal = peer.error();
    auto refused = std::make_unique<RdmaOperation>(std::move(setup));
    inbox_->Post([] {});  // the engine asks again, and attends to it
    running_.emplace(refused.get(), nullptr);
    return refused;
  }
  setup.slice_bytes = (*peer)->slice_bytes();
  setup.abort = [peer = peer->get()](RdmaOperation&) { peer->Abort(); };
  auto operation = std::make_unique<RdmaOperation>(std::move(setup));
  running_.emplace(operation.get(), *peer);
  (*peer)->Add(operation.get(), priority);
  inbox_->Post([] {});
  return operation;
}

bool RdmaTransport::RunTasks() {
  {
    const MutexLock lock(inbox_->mutex);
    tasks_.swap(inbox_->tasks);
  }
  for (const auto& task : tasks_) task();
  const bool any = !tasks_.empty();
  tasks_.clear();
  return any;
}

bool RdmaTransport::DrivePeers(TimePoint now) {
  driven_.clear();
  for (const auto& [operation, peer] : running_) {
    if (peer == nullptr) continue;
    if (std::find(driven_.begin(), driven_.end(), peer) == driven_.end()) driven_.push_back(peer);
  }
  bool moved = false;
  in_flight_ = false;
  for (const auto& peer : driven_) {
    moved |= peer->Drive(now);
    in_flight_ |= peer->in_flight() != 0;
  }
  return moved;
}

PollOutcome RdmaTransport::Poll(std::vector<uint64_t>* ready_tokens) {
  bool moved = RunTasks();
  if (running_.empty()) return Outcome(moved);
  const TimePoint now = Clock::now();
  moved |= DrivePeers(now);
  if (moved) {
    last_moved_ = now;
    is_armed_ = false;
  } else if (in_flight_ && !is_armed_ && now - last_moved_ > devices_.options().spin) {
    is_armed_ = true;
    for (const auto& peer : driven_) peer->Arm();
    moved = DrivePeers(now);  // one may have come before
    if (moved) is_armed_ = false;
  }
  CollectReady(ready_tokens);
  return Outcome(moved);
}

void RdmaTransport::CollectReady(std::vector<uint64_t>* ready_tokens) {
  for (auto it = running_.begin(); it != running_.end();) {
    RdmaOperation* const operation = it->first;
    if (!operation->Update()) {
      ++it;
      continue;
    }
    if (operation->notify_driver() != nullptr) {
      notifying_.push_back(operation->notify_driver());
    } else {
      ready_tokens->push_back(operation->token());
    }
    if (!operation->finished()) {
      ++it;
      continue;
    }
    if (it->second != nullptr) it->second->Remove(operation);
    it = running_.erase(it);
  }
  // Who is told may start others, and let go of these.
  for (auto& notify_driver : std::exchange(notifying_, {})) notify_driver();
}

// The event may come long after: it wakes whoever sleeps, and that is all.
Status RdmaTransport::Watch(RdmaConnection& connection) {
  ++connections_;
  for (VerbsCompletionQueue* const queue : connection.queues()) {
    Status watched = events_.Watch(queue->fd(), [queue, inbox = inbox_] {
      queue->TakeEvents();
      inbox->Post([] {});
    });
    if (watched) continue;
    Ignore(connection);
    return watched;
  }
  return {};
}

void RdmaTransport::Unwatch(RdmaConnection& connection) {
  --connections_;
  Ignore(connection);
}

void RdmaTransport::Ignore(RdmaConnection& connection) {
  for (VerbsCompletionQueue* const queue : connection.queues()) events_.Ignore(queue->fd());
}

}  // namespace gantry::transport
