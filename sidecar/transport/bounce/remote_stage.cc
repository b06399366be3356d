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

Result<std::shared_ptr<RemoteStage::Lent>> RemoteStage::Lent::Of(
    const wire::StageGrant& grant, const std::shared_ptr<RdmaPeer>& peer) {
  ASSIGN_OR_RETURN(auto memory, RdmaRemoteBufferOf(peer, grant.slices, grant.devices));
  return std::make_shared<Lent>(grant.stage, grant.slice_bytes, std::move(memory));
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

uint64_t RemoteStage::Join(Joined joined) {
  if (lent_ != nullptr && !is_closing_) {
    ++users_;
    joined(lent_);
    return 0;
  }
  joining_.emplace(++last_joining_, std::move(joined));
  if (!is_opening_ && !is_closing_) Open();
  return last_joining_;
}

void RemoteStage::Cancel(uint64_t joining) { joining_.erase(joining); }

Result<wire::StageGrant> RemoteStage::Ask() const {
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
    auto grant = std::make_shared<Result<wire::StageGrant>>(self->Ask());
    self->core_.post([self, grant] { self->Opened(*grant); });
  });
}

void RemoteStage::Opened(const Result<wire::StageGrant>& grant) {
  is_opening_ = false;
  auto lent = grant ? Lent::Of(*grant, peer_) : Fail(OfThePeer(grant.error(), name_));
  const bool refused = !lent && !IsOfTheSession(lent.error());
  if (refused) {
    lent = Fail(Error(ErrorCode::kPathUnavailable,
                      "peer '" + name_ + "' lends no staging memory: " + lent.error().message,
                      lent.error().hint));
  }
  bool said = false;
  {
    const MutexLock lock(mutex_);
    said = refusal_.has_value();
    refusal_ = refused ? std::optional(lent.error()) : std::nullopt;
    refused_until_ = Clock::now() + times_.ask_again;
  }
  if (refused && !said) log::Warning("staging memory is refused", {{"why", lent.error()}});
  if (lent) lent_ = *lent;
  if (lent) ++users_;  // this, until all are told
  for (const auto& [number, joined] : std::exchange(joining_, {})) {
    if (lent) ++users_;
    joined(lent);
  }
  if (lent) Leave();
}

void RemoteStage::Leave() {
  if (--users_ > 0) return;
  left_ = Clock::now();
  if (std::exchange(looks_, true)) return;
  core_.post_at(left_ + times_.idle_max, [self = shared_from_this()] { self->LookWhetherIdle(); });
}

void RemoteStage::LookWhetherIdle() {
  looks_ = false;
  if (users_ > 0 || lent_ == nullptr || is_closing_) return;
  if (const TimePoint idle = left_ + times_.idle_max; Clock::now() < idle) {
    looks_ = true;
    core_.post_at(idle, [self = shared_from_this()] { self->LookWhetherIdle(); });
    return;
  }
  is_closing_ = true;
  core_.helpers.Run([self = shared_from_this(), stage = lent_->stage] {
    const Status closed = self->exchange_->Close(stage, Clock::now() + kOpenTimeout);
    if (!closed) {
      log::Info(
          "staging memory was not given back: the next one that is asked for, or the "
          "session's end, does it",
          {{"peer", self->name_}, {"why", closed.error()}});
    }
    self->core_.post([self] {
      self->is_closing_ = false;
      self->lent_ = nullptr;
      if (!self->joining_.empty()) self->Open();
    });
  });
}

void RemoteStage::Copy(wire::StagedMove move, std::shared_ptr<Asking> asking,
                       std::function<void(const Status&)> done) {
  copies_.push_back({std::move(move), std::move(asking), std::move(done)});
  RunCopies();
}

void RemoteStage::RunCopies() {
  while (copying_ < kCopiesAtOnce && !copies_.empty()) {
    auto asked = std::make_shared<const Asked>(std::move(copies_.front()));
    copies_.pop_front();
    ++copying_;
    core_.helpers.Run([self = shared_from_this(), asked] {
      const Status copied = self->AskToCopy(*asked);
      self->core_.post([self, asked, copied] {
        --self->copying_;
        self->RunCopies();
        asked->done(copied);
      });
    });
  }
}

// What the peer had no time for it has not begun; what it ended by force is copied once more, as
// its workers may have stood still.
Status RemoteStage::AskToCopy(const Asked& asked) const {
  bool repeated = false;
  while (!asked.asking->stopped) {
    asked.asking->begun = true;
    Status copied =
        exchange_->Copy(asked.move, Clock::now() + milliseconds(asked.move.time_ms) + kCopyMargin);
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
