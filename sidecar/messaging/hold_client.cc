#include "sidecar/messaging/hold_client.h"

#include <algorithm>
#include <utility>

namespace gantry::engine {

void HoldClient::SetMessenger(PeerMessenger* messenger) {
  const MutexLock lock(mutex_);
  messenger_ = messenger;
}

Result<HoldReading> HoldClient::Read(const std::string& peer, wire::HoldUse use, TimePoint deadline,
                                     milliseconds quiesce) {
  const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now()) + quiesce;
  use.for_ms = static_cast<uint64_t>(std::max<int64_t>(1, left.count()));
  uint64_t number = 0;
  if (peer.empty()) {
    ASSIGN_OR_RETURN(number, own_.Use(use, {}));
    return HoldReading([this, number](bool succeeded) { own_.EndUse(number, succeeded); });
  }
  PeerMessenger* messenger = nullptr;
  {
    const MutexLock lock(mutex_);
    messenger = messenger_;
  }
  if (messenger == nullptr) {
    return Fail(ErrorCode::kNotFound, "there is no peer '" + peer + "'",
                "PUT /v1/peers/" + peer + " first");
  }
  struct Waiting {
    std::atomic<size_t>& count;
    size_t before = count.fetch_add(1);
    ~Waiting() { count.fetch_sub(1); }
  } waiting{waits_};
  if (waiting.before >= kWaitsMax) {
    return Fail(ErrorCode::kResourceExhausted,
                std::to_string(waiting.before) + " transfers wait for the owners of holds",
                "try again when the peers answer; GET /v1/peers says which do not");
  }
  ASSIGN_OR_RETURN(number, messenger->UseHold(peer, use, deadline));
  return HoldReading([this, peer, number](bool succeeded) { End(peer, number, succeeded); });
}

void HoldClient::End(const std::string& peer, uint64_t use, bool succeeded) {
  const MutexLock lock(mutex_);
  if (messenger_ != nullptr) messenger_->EndHoldUse(peer, use, succeeded);
}

}  // namespace gantry::engine
