#include "sidecar/transport/rdma/rdma_peer.h"

#include <algorithm>
#include <utility>

#include "lib/base/log.h"
#include "sidecar/transport/rdma/verbs/completion_reason.h"

namespace gantry::transport {
namespace {

constexpr milliseconds kConnectTimeout{5'000};
constexpr milliseconds kEndTimeout{1'000};
constexpr milliseconds kFlushTimeout{500};  // after an error: then they are destroyed
constexpr milliseconds kBackoffMin{20};
constexpr milliseconds kBackoffMax{2'000};
constexpr int kAttemptsMax = 3;  // to connect, in a row, that operations wait for
constexpr size_t kTurn = 32;     // work requests of one operation at a time
constexpr int kFailuresMax = 2;  // of queue pairs, in one transfer

}  // namespace

RdmaPeer::RdmaPeer(const RdmaCore& core, std::string name,
                   std::shared_ptr<QueuePairExchange> exchange)
    : core_(core),
      name_(std::move(name)),
      exchange_(std::move(exchange)),
      links_(core_.devices, peer_devices()) {}

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
  if (connection_ == nullptr) return;
  connection_->Break();
  core_.post([self = shared_from_this()] { self->Drive(Clock::now()); });
}

void RdmaPeer::Arm() {
  if (connection_ == nullptr || connection_->is_broken()) return;
  Status armed = connection_->Arm();
  if (armed) return;
  connection_->Break(std::move(armed).error().WithContext("completions cannot be waited for"));
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
    if (connection_->has_moved()) backoff_ = milliseconds(0);
    if (failure) HandleFailure(*failure);
    GiveUpLostPorts(now, moved);
    HandleBreakdown(now);
    if (over || connection_->is_broken()) TakeDown(over ? milliseconds(0) : kFlushTimeout);
  }
  if (over) {
    FailAll(*over, /*is_counted=*/false);
    return moved;
  }
  FlushWritten();
  if (!HasWork()) return moved;
  // A port went down or came back. What is in flight ends first, as well as it can.
  if (connection_ != nullptr && !UsesWhatItMay(now)) {
    if (connection_->in_flight() == 0) TakeDown(milliseconds(0));
    return moved;
  }
  if (connection_ == nullptr) Connect(now);
  moved |= PostInTurn(now);
  HandleBreakdown(now);
  if (connection_ != nullptr && connection_->is_broken()) TakeDown(kFlushTimeout);
  return moved;
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
        if (const auto misfit = connection_->TakeMisfit()) HandleMisfit(operation, *misfit);
      }
      equal.insert(equal.begin(), waiting_.begin(), waiting_.end());
      moved |= any;
    }
  }
  return moved;
}

void RdmaPeer::HandleMisfit(RdmaOperation* operation, const RdmaConnection::Misfit& misfit) {
  const Result<bool> added = links_.AddCrossing(misfit.here, misfit.there);
  if (!added) return operation->FailWith(added.error());
  if (!*added) return;
  log::Info("queue pairs to a peer are made anew, to join devices of different places",
            {{"peer", name_}, {"crossings", links_.crossings()}});
  // What is in flight ends first.
  core_.post([self = shared_from_this()] { self->Drive(Clock::now()); });
}

void RdmaPeer::HandleFailure(const RdmaConnection::Failure& failure) {
  Error why = ErrorOf(failure.completion, core_.devices.at(failure.device).device->name(), name_);
  core_.count_error(why);
  log::Warning("a work request failed", {{"peer", name_}, {"why", why}});
  if (MayBeTriedAgain(failure.completion.status) && ++failures_[failure.operation] < kFailuresMax) {
    return;
  }
  failure.operation->FailWith(std::move(why), /*is_counted=*/true);
}

void RdmaPeer::GiveUpLostPorts(TimePoint now, bool moved) {
  if (moved || connection_->in_flight() == 0 || connection_->is_broken()) {
    stalled_since_ = {};
    return;
  }
  if (stalled_since_ == TimePoint{}) stalled_since_ = now;
  const TimePoint lost_by = stalled_since_ + core_.devices.options().RetryTime();
  if (now >= lost_by) {
    stalled_since_ = now;
    const std::string down = connection_->DownOf(core_.devices);
    down.empty() ? CheckPorts() : GiveUp(down);
  } else if (!std::exchange(looks_again_, true)) {
    core_.post_at(lost_by, [self = shared_from_this()] {
      self->looks_again_ = false;
      self->Drive(Clock::now());
    });
  }
}

// A port's end is not always told.
void RdmaPeer::CheckPorts() {
  if (std::exchange(is_asking_, true)) return;
  core_.helpers.Run(
      [self = shared_from_this(), id = connection_->id(), devices = connection_->devices()] {
        const std::string lost = self->core_.devices.FindLost(devices);
        self->core_.post([self, id, lost] {
          self->is_asking_ = false;
          const bool same = self->connection_ != nullptr && self->connection_->id() == id;
          if (same && !lost.empty()) self->GiveUp(lost);
          self->Drive(Clock::now());
        });
      });
}

void RdmaPeer::GiveUp(const std::string& device) {
  connection_->Break(Error(ErrorCode::kDeviceError,
                           "the port of RDMA device " + device +
                               " went down, and the device did not end what was in flight",
                           "check cable and switch"));
}

// Whatever was not moved yet is hit by it alike.
void RdmaPeer::HandleBreakdown(TimePoint now) {
  if (connection_ == nullptr) return;
  const std::optional<Error> why = connection_->TakeReason();
  if (!why) return;
  core_.count_error(*why);
  log::Error("a connection of queue pairs broke", {{"peer", name_}, {"why", *why}});
  if (!connection_->has_moved()) PutOff(now);
  for (const auto& [priority, equal] : operations_) {
    for (RdmaOperation* const operation : equal) {
      if (operation->has_unmoved() && ++failures_[operation] >= kFailuresMax) {
        operation->FailWith(*why, /*is_counted=*/true);
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
  core_.helpers.Run([self = shared_from_this(), links = links_.all(),
                     unended = std::exchange(unended_, {})]() mutable {
    // A session has so many connections there, and these count.
    while (!unended.empty() &&
           self->exchange_->End(unended.back(), Clock::now() + kEndTimeout).has_value()) {
      unended.pop_back();
    }
    auto made = RdmaConnection::Make(self->core_.devices, links, *self->exchange_,
                                     Clock::now() + kConnectTimeout);
    auto shared = std::make_shared<decltype(made)>(std::move(made));
    self->core_.post([self, shared, unended = std::move(unended)] {
      self->unended_ = unended;
      self->Connected(std::move(*shared));
    });
  });
}

void RdmaPeer::PutOff(TimePoint now) {
  backoff_ = std::clamp(2 * backoff_, kBackoffMin, kBackoffMax);
  next_attempt_ = now + backoff_;
  core_.post_at(next_attempt_, [self = shared_from_this()] { self->Drive(Clock::now()); });
}

void RdmaPeer::NoteLeftOut(TimePoint now) {
  for (const auto& [link, why] : connection_->left_out()) {
    const RdmaLinks::Noted noted = links_.LeaveOut(link, why, now);
    // There may be work that goes over nothing else.
    core_.post_at(noted.again_at, [self = shared_from_this()] { self->Drive(Clock::now()); });
    if (!noted.is_new) continue;
    core_.count_error(why);
    log::Warning("an RDMA device is left out of a connection, and tried again later",
                 {{"peer", name_},
                  {"device", core_.devices.at(link.device).device->name()},
                  {"peer_device", link.peer_device},
                  {"why", why}});
  }
  for (const RdmaLink& link : links_.all()) {
    if (connection_->Uses(link)) links_.Use(link);
  }
}

bool RdmaPeer::UsesWhatItMay(TimePoint now) const {
  if (!connection_->DownOf(core_.devices).empty()) return false;
  const std::vector<RdmaLink> links = links_.all();
  return std::all_of(links.begin(), links.end(), [&](const RdmaLink& link) {
    return !core_.devices.IsUp(link.device) || connection_->Uses(link) || links_.Rests(link, now);
  });
}

// One whose completions nobody hears of is none.
void RdmaPeer::Connected(Result<std::unique_ptr<RdmaConnection>> made) {
  is_connecting_ = false;
  const TimePoint now = Clock::now();
  std::optional<Error> why;
  if (made) {
    connection_ = *std::move(made);
    stalled_since_ = {};
    NoteLeftOut(now);
    if (Status watched = core_.watch(*connection_); !watched) {
      why = std::move(watched).error().WithContext("completions cannot be waited for");
      connection_->Break();
    }
  } else {
    why = std::move(made).error();
  }
  attempts_ = why ? attempts_ + 1 : 0;
  if (why) PutOff(now);
  {
    const MutexLock lock(mutex_);
    refused_until_ = next_attempt_;
    last_failure_ = why;
    holds_memory_ = connection_ != nullptr;
    changed_.NotifyAll();
  }
  if (why) {
    log::Warning("queue pairs to a peer could not be connected", {{"peer", name_}, {"why", *why}});
    core_.count_error(*why);
    // Other paths may lead there: whoever waits is told, and those that come see it for a while.
    if (attempts_ >= kAttemptsMax) {
      attempts_ = 0;
      links_.DropCrossings();  // it may have been for these: others go on without
      FailAll(*why, /*is_counted=*/true);
    }
  }
  (void)Drive(now);
}

void RdmaPeer::TakeDown(milliseconds flush) {
  core_.unwatch(*connection_);
  is_ending_ = true;
  const std::shared_ptr<RdmaConnection> gone = std::move(connection_);
  core_.helpers.Run([self = shared_from_this(), gone, flush] {
    gone->TakeDown(flush);
    self->core_.post([self, gone] { self->TakenDown(*gone); });
    const Status said = self->exchange_->End(gone->id(), Clock::now() + kEndTimeout);
    self->core_.post([self, id = gone->id(), said] { self->EndedAtPeer(id, said); });
  });
}

// What was written through it has arrived, or never will, once the peer's ends are gone. What was
// to be read arrives nowhere without this side's. From here on nothing is sent again, so that the
// lease of the peer's ends is a proof without its word.
void RdmaPeer::TakenDown(RdmaConnection& connection) {
  std::optional<RdmaConnection::Failure> failure;
  connection.CompleteInFlight(&failure);
  if (failure) HandleFailure(*failure);
  for (const auto& [priority, equal] : operations_) {
    for (RdmaOperation* const operation : equal) {
      if (!operation->needs_peers_end()) continue;
      operation->ForgetLanes();
      operation->AwaitQuiet();
      unquiet_.push_back(operation);
    }
  }
  {
    const MutexLock lock(mutex_);
    holds_memory_ = false;
    changed_.NotifyAll();
  }
  ending_ = connection.id();
  core_.post_at(Clock::now() + connection.lease(),
                [self = shared_from_this(), id = *ending_] { self->LeaseIsOver(id); });
}

void RdmaPeer::EndedAtPeer(uint64_t connection, const Status& said) {
  if (said) {
    std::erase(unended_, connection);
    if (ending_ == connection) BecameQuiet();
    return;
  }
  log::Warning("a peer does not say that its queue pairs are gone: their lease is waited for",
               {{"peer", name_}, {"why", said.error()}});
}

void RdmaPeer::LeaseIsOver(uint64_t connection) {
  if (ending_ != connection) return;
  unended_.push_back(connection);
  BecameQuiet();
}

void RdmaPeer::BecameQuiet() {
  ending_.reset();
  is_ending_ = false;
  for (RdmaOperation* const operation : std::exchange(unquiet_, {})) operation->BecameQuiet();
  (void)Drive(Clock::now());
}

void RdmaPeer::FailAll(const Error& why, bool is_counted) {
  for (auto& [priority, equal] : operations_) {
    for (RdmaOperation* const operation : equal) operation->FailWith(why, is_counted);
  }
}

}  // namespace gantry::transport
