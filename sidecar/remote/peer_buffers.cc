#include "sidecar/remote/peer_buffers.h"

namespace gantry::engine {

Result<std::vector<std::shared_ptr<const RemoteBuffer>>> PeerBuffers::Acquire(
    const std::string& peer, const std::vector<wire::BufferReference>& references, RemoteUse use,
    TimePoint deadline) {
  if (gateway_ == nullptr) {
    return Fail(ErrorCode::kNotFound, "there is no peer '" + peer + "'",
                "PUT /v1/peers/" + peer + " first", "/remote/0");
  }
  auto cached = gateway_->Acquire(peer, references, use, Clock::now());
  if (cached || cached.error().code != ErrorCode::kDeadlineExceeded || deadline <= Clock::now()) {
    return cached;
  }
  // Callers' threads are few: a peer that does not answer must not take all of them.
  struct Waiting {
    std::atomic<size_t>& count;
    size_t before = count.fetch_add(1);
    ~Waiting() { count.fetch_sub(1); }
  } waiting{waits_};
  if (waiting.before >= waits_max_) {
    return Fail(ErrorCode::kResourceExhausted,
                std::to_string(waiting.before) + " transfers wait for descriptions from peers",
                "try again when the peers answer; GET /v1/peers says which do not", "/remote/0");
  }
  return gateway_->Acquire(peer, references, use, deadline);
}

}  // namespace gantry::engine
