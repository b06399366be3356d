// Acquires peers' buffers for callers whose threads are few. Cached buffers come at once; others
// only while few calls wait for peers. Thread-safe.
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
  // `waits_max` limits the calls that wait for peers at the same time.
  explicit PeerBuffers(size_t waits_max) : waits_max_(waits_max) {}

  // Call once, before the first Acquire; null: there are no peers.
  void SetGateway(PeerGateway* gateway) { gateway_ = gateway; }

  // All or none; may block until the deadline. kResourceExhausted beyond the limit of waits.
  Result<std::vector<std::shared_ptr<const RemoteBuffer>>> Acquire(
      const std::string& peer, const std::vector<wire::BufferReference>& references, RemoteUse use,
      TimePoint deadline);
  // See PeerGateway::Refresh.
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
