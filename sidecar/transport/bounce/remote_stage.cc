#include "sidecar/transport/bounce/remote_stage.h"

#include <algorithm>
#include <utility>

#include "lib/base/log.h"

namespace gantry::transport {
namespace {

constexpr uint32_t kSlicesWanted = 32;
constexpr milliseconds kOpenTimeout{5'000};
constexpr milliseconds kCopyMargin{2'000};  // for the answer, after the time of the copy itself

DeviceSet AllOf(size_t devices) {
  DeviceSet set;
  for (uint32_t i = 0; i < devices; ++i) set.Add(i);
  return set;
}

Status CheckGrant(const wire::StageGrant& grant, size_t peer_devices) {
  const size_t keys = grant.slices.empty() ? 0 : grant.slices.front().keys.size();
  if (!grant.slices.empty() && keys == peer_devices) return {};
  return Fail(ErrorCode::kMalformedBody, "the peer's slices have " + std::to_string(keys) +
                                             " keys, for " + std::to_string(peer_devices) +
                                             " RDMA devices");
}

}  // namespace

RemoteStage::Lent::Lent(wire::StageGrant granted, const std::shared_ptr<RdmaPeer>& peer)
    : grant(std::move(granted)),
      memory(std::make_shared<const RdmaRemoteBuffer>(peer, grant.slices,
                                                      AllOf(peer->peer_devices()))),
      slices(static_cast<uint32_t>(grant.slices.size())) {}

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

void RemoteStage::Join(Joined joined) {
  ++users_;
  if (lent_ != nullptr && !is_closing_) return joined(lent_);
  joining_.push_back(std::move(joined));
  if (!is_opening_ && !is_closing_) Open();
}

void RemoteStage::Open() {
  is_opening_ = true;
  core_.helpers.Run([self = shared_from_this()] {
    auto grant = std::make_shared<Result<wire::StageGrant>>(
        self->exchange_->Open(kSlicesWanted, Clock::now() + kOpenTimeout));
    self->core_.post([self, grant] { self->Opened(std::move(*grant)); });
  });
}

void RemoteStage::Opened(Result<wire::StageGrant> grant) {
  is_opening_ = false;
  Status fits = grant ? CheckGrant(*grant, peer_->peer_devices()) : Status();
  if (!fits) grant = Fail(std::move(fits).error());
  Result<std::shared_ptr<Lent>> lent =
      grant ? Result<std::shared_ptr<Lent>>(
                  lent_ = std::make_shared<Lent>(*std::move(grant), peer_))
            : Fail(Error(ErrorCode::kPathUnavailable,
                         "peer '" + name_ + "' lends no staging memory: " + grant.error().message,
                         grant.error().hint));
  {
    const MutexLock lock(mutex_);
    refusal_ = lent ? std::nullopt : std::optional(lent.error());
    refused_until_ = Clock::now() + times_.ask_again;
  }
  if (!lent) {
    log::Warning("a peer lends no staging memory", {{"peer", name_}, {"why", lent.error()}});
    users_ -= joining_.size();
  }
  for (const Joined& joined : std::exchange(joining_, {})) joined(lent);
}

void RemoteStage::Leave() {
  if (--users_ > 0) return;
  core_.post_at(Clock::now() + times_.idle_max,
                [self = shared_from_this(), round = ++round_] { self->CloseWhenIdle(round); });
}

void RemoteStage::CloseWhenIdle(uint64_t round) {
  if (users_ > 0 || round != round_ || lent_ == nullptr || is_closing_) return;
  is_closing_ = true;
  core_.helpers.Run([self = shared_from_this(), stage = lent_->grant.stage] {
    const Status closed = self->exchange_->Close(stage, Clock::now() + kOpenTimeout);
    if (!closed) {
      log::Info("staging memory was not given back, its session's end does it",
                {{"peer", self->name_}, {"why", closed.error()}});
    }
    self->core_.post([self] {
      self->is_closing_ = false;
      self->lent_ = nullptr;
      if (!self->joining_.empty()) self->Open();
    });
  });
}

void RemoteStage::Copy(wire::StagedMove move, std::function<void(const Status&)> done) {
  core_.helpers.Run([self = shared_from_this(), move = std::move(move), done = std::move(done)] {
    const Status copied =
        self->exchange_->Copy(move, Clock::now() + milliseconds(move.time_ms) + kCopyMargin);
    self->core_.post([done, copied] { done(copied); });
  });
}

}  // namespace gantry::transport
