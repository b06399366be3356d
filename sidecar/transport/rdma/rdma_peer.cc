#include "sidecar/transport/rdma/rdma_peer.h"

#include <algorithm>
#include <utility>

#include "lib/base/log.h"
#include "sidecar/transport/rdma/completion_reason.h"

namespace gantry::transport {
namespace {

constexpr milliseconds kConnectTimeout{5'000};
constexpr milliseconds kEndTimeout{1'000};
constexpr milliseconds kFlushTimeout{500};  // after an error: then queue pairs are destroyed
constexpr milliseconds kBackoffMin{20};
constexpr milliseconds kBackoffMax{2'000};
constexpr int kAttemptsMax = 3;  // to connect, in a row, that operations wait for
constexpr size_t kTurn = 32;     // work requests of one operation at a time
constexpr int kFailuresMax = 2;  // of queue pairs, in one transfer

// Beside the lanes of each device to that of its place.
size_t CrossingsMax(const RdmaDevices& devices) {
  const size_t pairs = wire::kQueuePairsMax / static_cast<size_t>(devices.options().queue_pairs);
  return std::max(pairs, devices.size() + 1) - devices.size();
}

}  // namespace

RdmaPeer::RdmaPeer(const RdmaCore& core, std::string name,
                   std::shared_ptr<QueuePairExchange> exchange)
    : core_(core), name_(std::move(name)), exchange_(std::move(exchange)) {}

std::optional<Error> RdmaPeer::closed() const {
  const MutexLock lock(mutex_);
  return closed_;
}

Status RdmaPeer::Usable() const {
  const MutexLock lock(mutex_);
  if (closed_) return Fail(*closed_);
  // Later somebody has to try again, and nobody does without work.
  const bool tries = holds_memory_;
  if (last_failure_ && (tries || Clock::now() < refused_until_)) return Fail(*last_failure_);
  return {};
}

void RdmaPeer::Close(Error why) {
  {
    const MutexLock lock(mutex_);
    if (closed_) return;
    closed_ = std::move(why);
  }
  core_.post([self = shared_from_this()] { self->Drive(Clock::now()); });
}

void RdmaPeer::AwaitClosed() {
  MutexLock lock(mutex_);
  while (holds_memory_) changed_.Wait(lock);
}

void RdmaPeer::Add(RdmaOperation* operation, int priority) {
  operations_[priority].push_back(operation);
}

void RdmaPeer::Remove(RdmaOperation* operation) {
  for (auto it = operations_.begin(); it != operations_.end();) {
    std::erase(it->second, operation);
    it = it->second.empty() ? operations_.erase(it) : std::next(it);
  }
  failures_.erase(operation);
  std::erase(unquiet_, operation);
}

void RdmaPeer::Abort() {
  if (connection_ != nullptr) connection_->Break();
}

bool RdmaPeer::HasWork() const {
  return std::any_of(operations_.begin(), operations_.end(), [](const auto& equal) {
    return std::any_of(equal.second.begin(), equal.second.end(),
                       [](const RdmaOperation* operation) { return operation->has_more(); });
  });
}

bool RdmaPeer::Drive(TimePoint now) {
  bool moved = false;
  const std::optional<Error> over = closed();
  if (connection_ != nullptr) {
    std::optional<RdmaConnection::Failure> failure;
    moved = connection_->Poll(&failure);
    if (failure) HandleFailure(*failure);
    HandleBreakdown();
    if (over) {
      connection_->Break();
      connection_->Drop();
    }
    if (connection_->is_broken()) {
      if (break_by_ == TimePoint{}) {
        break_by_ = now + kFlushTimeout;
        core_.post_at(break_by_, [self = shared_from_this()] { self->Drive(Clock::now()); });
      }
      if (now >= break_by_) connection_->Drop();
      if (connection_->in_flight() == 0) EndConnection(now);
    }
  }
  if (over) {
    FailAll(*over);
    return moved;
  }
  FlushWritten();
  if (!HasWork()) return moved;
  // A port went down or came back. What is in flight ends first, as well as it can.
  if (connection_ != nullptr && !connection_->UsesAllOf(core_.devices, crossings_)) {
    if (connection_->in_flight() == 0) EndConnection(now);
    return moved;
  }
  if (connection_ == nullptr) Connect(now);
  moved |= PostInTurn(now);
  HandleMisfit();
  HandleBreakdown();
  return moved;
}

void RdmaPeer::HandleMisfit() {
  if (connection_ == nullptr) return;
  const auto misfit = connection_->TakeMisfit();
  if (!misfit) return;
  const std::vector<uint32_t> here = (misfit->here & core_.devices.Up()).List();
  const std::vector<uint32_t> there = misfit->there.List();
  if (here.empty()) {
    return misfit->operation->FailWith(core_.devices.NoneUpOf(misfit->here));
  }
  const size_t most = CrossingsMax(core_.devices);
  std::set<Crossing> needed;
  for (size_t i = 0; i < std::min(most, std::max(here.size(), there.size())); ++i) {
    needed.insert({here[i % here.size()], there[i % there.size()]});
  }
  if (crossings_.size() + needed.size() > most) crossings_.clear();  // what is needed comes again
  crossings_.merge(needed);
  log::Info("queue pairs to a peer are made anew, to join devices of different places",
            {{"peer", name_}, {"crossings", crossings_.size()}});
  // What is in flight ends first.
  core_.post([self = shared_from_this()] { self->Drive(Clock::now()); });
}

void RdmaPeer::FlushWritten() {
  if (connection_ == nullptr) return;
  for (const auto& [priority, equal] : operations_) {
    for (RdmaOperation* const operation : equal) {
      if (operation->wants_flush()) connection_->PostFlushes(*operation);
    }
  }
}

// Round after round over those of the highest priority that have something. Where there is no room
// for one, it is before those that had some the next time; others may have devices of their own.
bool RdmaPeer::PostInTurn(TimePoint now) {
  bool moved = false;
  for (auto& [priority, equal] : operations_) {
    for (bool any = true; any && connection_ != nullptr && !connection_->is_broken();) {
      any = false;
      waiting_.clear();
      for (size_t left = equal.size(); left > 0; --left) {
        RdmaOperation* const operation = equal.front();
        equal.pop_front();
        const bool has_more = operation->has_more();
        const bool posted = has_more && connection_->Post(*operation, kTurn, now);
        any |= posted;
        if (has_more && !posted) {
          waiting_.push_back(operation);
        } else {
          equal.push_back(operation);
        }
      }
      equal.insert(equal.begin(), waiting_.begin(), waiting_.end());
      moved |= any;
    }
  }
  return moved;
}

void RdmaPeer::HandleFailure(const RdmaConnection::Failure& failure) {
  Error why = ErrorOf(failure.completion, core_.devices.at(failure.device).device->name(), name_);
  core_.count_error(why);
  log::Warning("a work request failed", {{"peer", name_}, {"why", why}});
  if (MayBeTriedAgain(failure.completion.status) && ++failures_[failure.operation] < kFailuresMax) {
    return;
  }
  failure.operation->FailWith(std::move(why));
}

// Whatever was not moved yet is hit by it alike.
void RdmaPeer::HandleBreakdown() {
  if (connection_ == nullptr) return;
  const std::optional<Error> why = connection_->TakeReason();
  if (!why) return;
  core_.count_error(*why);
  log::Error("a connection of queue pairs broke", {{"peer", name_}, {"why", *why}});
  for (const auto& [priority, equal] : operations_) {
    for (RdmaOperation* const operation : equal) {
      if (operation->has_more() && ++failures_[operation] >= kFailuresMax) {
        operation->FailWith(*why);
      }
    }
  }
}

void RdmaPeer::Connect(TimePoint now) {
  if (is_connecting_ || is_ending_ || now < next_attempt_) return;
  {
    const MutexLock lock(mutex_);
    if (closed_) return;  // meanwhile; who awaited that may be told already
    holds_memory_ = true;
  }
  is_connecting_ = true;
  core_.helpers.Run([self = shared_from_this(), crossings = crossings_,
                     unended = std::exchange(unended_, {})]() mutable {
    // A session has so many connections there, and these count.
    while (!unended.empty() &&
           self->exchange_->End(unended.back(), Clock::now() + kEndTimeout).has_value()) {
      unended.pop_back();
    }
    auto made = RdmaConnection::Make(self->core_.devices, crossings, *self->exchange_,
                                     Clock::now() + kConnectTimeout);
    auto shared = std::make_shared<decltype(made)>(std::move(made));
    self->core_.post([self, shared, unended = std::move(unended)] {
      self->unended_ = unended;
      self->Connected(std::move(*shared));
    });
  });
}

void RdmaPeer::Connected(Result<std::unique_ptr<RdmaConnection>> made) {
  is_connecting_ = false;
  const TimePoint now = Clock::now();
  const bool worked = made.has_value();
  attempts_ = worked ? 0 : attempts_ + 1;
  if (!worked) {
    backoff_ = std::clamp(2 * backoff_, kBackoffMin, kBackoffMax);
    next_attempt_ = now + backoff_;
  }
  {
    const MutexLock lock(mutex_);
    refused_until_ = next_attempt_;
    last_failure_ = worked ? std::nullopt : std::optional(made.error());
    holds_memory_ = worked;
    changed_.NotifyAll();
  }
  if (worked) {
    backoff_ = milliseconds(0);
    connection_ = *std::move(made);
    break_by_ = {};
    core_.watch(*connection_);
  } else {
    log::Warning("queue pairs to a peer could not be connected",
                 {{"peer", name_}, {"why", made.error()}});
    core_.count_error(made.error());
    // Other paths may lead there: whoever waits is told, and those that come see it for a while.
    if (attempts_ >= kAttemptsMax) {
      attempts_ = 0;
      crossings_.clear();  // it may have been for these: others go on without
      FailAll(made.error());
    }
    core_.post_at(next_attempt_, [self = shared_from_this()] { self->Drive(Clock::now()); });
  }
  (void)Drive(now);
}

void RdmaPeer::EndConnection(TimePoint now) {
  const uint64_t id = connection_->id();
  const milliseconds lease = connection_->lease();
  // What was written through it has arrived, or never will, once the peer's ends are gone. What was
  // to be read arrives nowhere without this side's.
  for (const auto& [priority, equal] : operations_) {
    for (RdmaOperation* const operation : equal) {
      if (!operation->needs_peers_end()) continue;
      operation->ForgetLanes();
      operation->AwaitQuiet();
      unquiet_.push_back(operation);
    }
  }
  core_.unwatch(*connection_);
  connection_.reset();
  {
    const MutexLock lock(mutex_);
    holds_memory_ = false;
    changed_.NotifyAll();
  }
  is_ending_ = true;
  core_.helpers.Run(
      [self = shared_from_this(), id, lease, now] { self->EndAtPeer(id, lease, now); });
}

// Without an answer of the peer's the lease of its ends is the proof.
void RdmaPeer::EndAtPeer(uint64_t connection, milliseconds lease, TimePoint ended) {
  const Status said = exchange_->End(connection, Clock::now() + kEndTimeout);
  if (said) return core_.post([self = shared_from_this()] { self->Ended(); });
  log::Warning("a peer does not say that its queue pairs are gone: their lease is waited for",
               {{"peer", name_}, {"ms", lease.count()}, {"why", said.error()}});
  core_.post_at(ended + lease, [self = shared_from_this(), connection] {
    self->unended_.push_back(connection);
    self->Ended();
  });
}

void RdmaPeer::Ended() {
  is_ending_ = false;
  for (RdmaOperation* const operation : std::exchange(unquiet_, {})) operation->BecameQuiet();
  (void)Drive(Clock::now());
}

void RdmaPeer::FailAll(const Error& why) {
  for (auto& [priority, equal] : operations_) {
    for (RdmaOperation* const operation : equal) operation->FailWith(why);
  }
}

}  // namespace gantry::transport
