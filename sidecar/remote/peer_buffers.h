// Peers' buffers for callers on threads that are few: what is cached at once, what is not only
// while not too many wait for peers already. Thread-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "sidecar/remote/peer_gateway.h"

namespace gantry::engine {

class PeerBuffers {
 public:
  // At most so many calls wait for peers at the same time.
  explicit PeerBuffers(size_t waits_max) : waits_max_(waits_max) {}

  // Set once, before the first Acquire; null: there are no peers.
  void SetGateway(PeerGateway* gateway) { gateway_ = gateway; }

  // All or none; may block up to the deadline.
  Result<std::vector<std::shared_ptr<const RemoteBuffer>>> Acquire(
      const std::string& peer, const std::vector<wire::BufferReference>& references, RemoteUse use,
      TimePoint deadline);
  // As the gateway has it.
  void Refresh(const std::string& peer, const std::vector<uint64_t>& stale, const Error& why,
               TimePoint deadline) {
    if (gateway_ != nullptr) gateway_->Refresh(peer, stale, why, deadline);
  }

 private:
  const size_t waits_max_;
  PeerGateway* gateway_ = nullptr;
  std::atomic<size_t> waits_{0};
};

}  // namespace gantry::engine
