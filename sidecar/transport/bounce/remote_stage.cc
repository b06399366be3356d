#include "sidecar/transport/bounce/remote_stage.h"

#include <thread>
#include <utility>

#include "lib/base/log.h"

namespace gantry::transport {
namespace {

constexpr uint32_t kSlicesWanted = 32;
constexpr milliseconds kOpenTimeout{5'000};
constexpr milliseconds kTryAgain{10};
constexpr milliseconds kCopyMargin{2'000};  // for the answer, after the time of the copy itself

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

void RemoteStage::Open() {
  is_opening_ = true;
  core_.helpers.Run([self = shared_from_this()] {
    auto grant = std::make_shared<Result<wire::StageGrant>>(
        self->exchange_->Open(kSlicesWanted, Clock::now() + kOpenTimeout));
    self->core_.post([self, grant] { self->Opened(*grant); });
  });
}

void RemoteStage::Opened(const Result<wire::StageGrant>& grant) {
  is_opening_ = false;
  auto lent = grant ? Lent::Of(*grant, peer_) : Fail(grant.error());
  if (lent) {
    lent_ = *lent;
  } else {
    if (grant) GiveBack(grant->stage);
    lent = Fail(Error(ErrorCode::kPathUnavailable,
                      "peer '" + name_ + "' lends no staging memory: " + lent.error().message,
                      lent.error().hint));
    log::Warning("a peer lends no staging memory", {{"peer", name_}, {"why", lent.error()}});
  }
  {
    const MutexLock lock(mutex_);
    refusal_ = lent ? std::nullopt : std::optional(lent.error());
    refused_until_ = Clock::now() + times_.ask_again;
  }
  if (lent) ++users_;  // this, until all are told
  for (const auto& [number, joined] : std::exchange(joining_, {})) {
    if (lent) ++users_;
    joined(lent);
  }
  if (lent) Leave();
}

void RemoteStage::Leave() {
  if (--users_ > 0) return;
  core_.post_at(Clock::now() + times_.idle_max,
                [self = shared_from_this(), round = ++round_] { self->CloseWhenIdle(round); });
}

void RemoteStage::CloseWhenIdle(uint64_t round) {
  if (users_ > 0 || round != round_ || lent_ == nullptr || is_closing_) return;
  is_closing_ = true;
  GiveBack(lent_->stage);
}

void RemoteStage::GiveBack(uint64_t stage) {
  core_.helpers.Run([self = shared_from_this(), stage] {
    const Status closed = self->exchange_->Close(stage, Clock::now() + kOpenTimeout);
    if (!closed) {
      log::Info("staging memory was not given back, its session's end does it",
                {{"peer", self->name_}, {"why", closed.error()}});
    }
    self->core_.post([self] {
      if (!std::exchange(self->is_closing_, false)) return;
      self->lent_ = nullptr;
      if (!self->joining_.empty()) self->Open();
    });
  });
}

void RemoteStage::Copy(wire::StagedMove move, std::function<void(const Status&)> done) {
  core_.helpers.Run([self = shared_from_this(), move = std::move(move), done = std::move(done)] {
    const TimePoint end = Clock::now() + milliseconds(move.time_ms);
    Status copied = self->exchange_->Copy(move, end + kCopyMargin);
    // It has too much to do at the moment, and has done nothing.
    while (!copied && copied.error().code == ErrorCode::kResourceExhausted && Clock::now() < end) {
      std::this_thread::sleep_for(kTryAgain);
      copied = self->exchange_->Copy(move, end + kCopyMargin);
    }
    self->core_.post([done, copied] { done(copied); });
  });
}

}  // namespace gantry::transport
