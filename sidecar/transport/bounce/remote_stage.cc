#include "sidecar/transport/bounce/remote_stage.h"

#include <thread>
#include <utility>

#include "lib/base/log.h"

namespace gantry::transport {
namespace {

constexpr uint32_t kSlicesWanted = 32;
constexpr milliseconds kOpenTimeout{5'000};
constexpr int kCopiesAtOnce = 8;
constexpr milliseconds kTryAgain{10};
constexpr milliseconds kCopyMargin{2'000};  // for the answer, after the time of the copy itself

constexpr uint64_t kAnyStage = 0;  // whichever the session has

// Its end, and not what the peer can lend: a new session may do better.
bool IsOfTheSession(const Error& error) {
  switch (error.code) {
    case ErrorCode::kPeerLost:
    case ErrorCode::kPeerUnavailable:
    case ErrorCode::kStaleGeneration:
    case ErrorCode::kCancelled:
    case ErrorCode::kDeadlineExceeded:
    case ErrorCode::kShuttingDown:
      return true;
    default:
      return false;
  }
}

// The time and the cancel are those of the question, and not of the transfers that wait for it.
Error OfThePeer(Error why, const std::string& name) {
  if (why.code != ErrorCode::kDeadlineExceeded && why.code != ErrorCode::kCancelled) return why;
  return Error(ErrorCode::kPeerUnavailable,
               "peer '" + name + "' did not say what staging memory it lends: " + why.message);
}

}  // namespace

Result<std::shared_ptr<RemoteStage::StageLease>> RemoteStage::StageLease::Of(
    const wire::StageGrant& grant, const std::shared_ptr<RdmaPeer>& peer) {
  ASSIGN_OR_RETURN(auto memory, RdmaRemoteBufferOf(peer, grant.slices, grant.devices));
  return std::make_shared<StageLease>(grant.stage, grant.slice_bytes, std::move(memory));
}

RemoteStage::RemoteStage(const RdmaCore& core, std::string name, std::shared_ptr<RdmaPeer> peer,
                         std::shared_ptr<StageExchange> exchange, const Times& times)
    : core_(core),
      name_(std::move(name)),
      peer_(std::move(peer)),
      exchange_(std::move(exchange)),
      times_(times) {}

Status RemoteStage::Usable() const {
  const MutexLock lock(mutex_);
  if (refusal_ && Clock::now() < refused_until_) return Fail(*refusal_);
  return {};
}

uint64_t RemoteStage::Acquire(OnAcquired on_acquired) {
  if (stage_lease_ != nullptr && !is_closing_) {
    ++users_;
    on_acquired(stage_lease_);
    return 0;
  }
  acquiring_.emplace(++last_number_, std::move(on_acquired));
  if (!is_opening_ && !is_closing_) Open();
  return last_number_;
}

void RemoteStage::Cancel(uint64_t number) { acquiring_.erase(number); }

Result<wire::StageGrant> RemoteStage::RequestStage() const {
  const TimePoint deadline = Clock::now() + kOpenTimeout;
  auto grant = exchange_->Open(kSlicesWanted, deadline);
  if (grant || grant.error().code != ErrorCode::kConflict) return grant;
  // It has one for this session, of which nothing is known here: an answer was lost.
  RETURN_IF_ERROR(exchange_->Close(kAnyStage, deadline));
  return exchange_->Open(kSlicesWanted, deadline);
}

void RemoteStage::Open() {
  is_opening_ = true;
  core_.helpers.Run([self = shared_from_this()] {
    auto grant = std::make_shared<Result<wire::StageGrant>>(self->RequestStage());
    self->core_.post([self, grant] { self->Opened(*grant); });
  });
}

void RemoteStage::Opened(const Result<wire::StageGrant>& grant) {
  is_opening_ = false;
  auto stage_lease = grant ? StageLease::Of(*grant, peer_) : Fail(OfThePeer(grant.error(), name_));
  const bool refused = !stage_lease && !IsOfTheSession(stage_lease.error());
  if (refused) {
    stage_lease =
        Fail(Error(ErrorCode::kPathUnavailable,
                   "peer '" + name_ + "' lends no staging memory: " + stage_lease.error().message,
                   stage_lease.error().hint));
  }
  bool said = false;
  {
    const MutexLock lock(mutex_);
    said = refusal_.has_value();
    refusal_ = refused ? std::optional(stage_lease.error()) : std::nullopt;
    refused_until_ = Clock::now() + times_.ask_again;
  }
  if (refused && !said) log::Warning("staging memory is refused", {{"why", stage_lease.error()}});
  if (stage_lease) stage_lease_ = *stage_lease;
  if (stage_lease) ++users_;  // this, until all are told
  for (const auto& [number, on_acquired] : std::exchange(acquiring_, {})) {
    if (stage_lease) ++users_;
    on_acquired(stage_lease);
  }
  if (stage_lease) Release();
}

void RemoteStage::Release() {
  if (--users_ > 0) return;
  left_ = Clock::now();
  if (std::exchange(checks_idle_, true)) return;
  core_.post_at(left_ + times_.idle_max, [self = shared_from_this()] { self->CloseIfIdle(); });
}

void RemoteStage::CloseIfIdle() {
  checks_idle_ = false;
  if (users_ > 0 || stage_lease_ == nullptr || is_closing_) return;
  if (const TimePoint idle = left_ + times_.idle_max; Clock::now() < idle) {
    checks_idle_ = true;
    core_.post_at(idle, [self = shared_from_this()] { self->CloseIfIdle(); });
    return;
  }
  is_closing_ = true;
  core_.helpers.Run([self = shared_from_this(), stage = stage_lease_->stage] {
    const Status closed = self->exchange_->Close(stage, Clock::now() + kOpenTimeout);
    if (!closed) {
      log::Info(
          "staging memory was not given back: the next one that is asked for, or the "
          "session's end, does it",
          {{"peer", self->name_}, {"why", closed.error()}});
    }
    self->core_.post([self] {
      self->is_closing_ = false;
      self->stage_lease_ = nullptr;
      if (!self->acquiring_.empty()) self->Open();
    });
  });
}

void RemoteStage::Copy(wire::StagedMove move, std::shared_ptr<CopyControl> control,
                       std::function<void(const Status&)> done) {
  copies_.push_back({std::move(move), std::move(control), std::move(done)});
  RunCopies();
}

void RemoteStage::RunCopies() {
  while (copying_ < kCopiesAtOnce && !copies_.empty()) {
    auto copy = std::make_shared<const QueuedCopy>(std::move(copies_.front()));
    copies_.pop_front();
    ++copying_;
    core_.helpers.Run([self = shared_from_this(), copy] {
      const Status copied = self->RequestCopy(*copy);
      self->core_.post([self, copy, copied] {
        --self->copying_;
        self->RunCopies();
        copy->done(copied);
      });
    });
  }
}

// What the peer had no time for it has not begun; what it ended by force is copied once more, as
// its workers may have stood still.
Status RemoteStage::RequestCopy(const QueuedCopy& copy) const {
  bool repeated = false;
  while (!copy.control->stopped) {
    copy.control->begun = true;
    Status copied =
        exchange_->Copy(copy.move, Clock::now() + milliseconds(copy.move.time_ms) + kCopyMargin);
    if (copied) return copied;
    const ErrorCode code = copied.error().code;
    if (code == ErrorCode::kResourceExhausted) {
      std::this_thread::sleep_for(kTryAgain);
    } else if (code != ErrorCode::kDeadlineExceeded || std::exchange(repeated, true)) {
      return copied;
    }
  }
  return Fail(ErrorCode::kCancelled, "it was stopped");
}

}  // namespace gantry::transport
