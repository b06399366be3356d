// Peers' buffers for callers on threads that are few: what is cached at once, what is not only
// while not too many wait for peers already. Thread-safe.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "sidecar/engine/engine_options.h"
#include "sidecar/engine/peer_gateway.h"

namespace gantry::engine {

class PeerBuffers {
 public:
  explicit PeerBuffers(const EngineOptions& options) : options_(options) {}

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
  const EngineOptions& options_;
  PeerGateway* gateway_ = nullptr;
  std::atomic<size_t> waits_{0};
};

}  // namespace gantry::engine
