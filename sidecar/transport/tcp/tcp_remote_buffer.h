// A peer's buffer as tcp addresses it: its id and generation, over the peer's streams. Immutable;
// thread-safe.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "sidecar/plan/move_plan.h"
#include "sidecar/transport/tcp/tcp_peer.h"

namespace gantry::transport {

class TcpRemoteBuffer final : public RemoteTarget {
 public:
  // Returns null when tcp does not lead to the buffer.
  static const TcpRemoteBuffer* Of(const RemoteAllocation& remote) {
    if (remote.target == nullptr) return nullptr;
    return dynamic_cast<const TcpRemoteBuffer*>(remote.target->Over(wire::Path::kTcp));
  }
  // REQUIRES an id of 1 to kBufferIdBytesMax bytes.
  TcpRemoteBuffer(std::shared_ptr<TcpPeer> peer, std::string id, uint64_t generation,
                  uint64_t length)
      : peer_(std::move(peer)), id_(std::move(id)), generation_(generation), length_(length) {}

  uint64_t length() const override { return length_; }
  const std::shared_ptr<TcpPeer>& peer() const { return peer_; }
  const std::string& id() const { return id_; }
  uint64_t generation() const { return generation_; }

 private:
  const std::shared_ptr<TcpPeer> peer_;
  const std::string id_;
  const uint64_t generation_;
  const uint64_t length_;
};

}  // namespace gantry::transport
