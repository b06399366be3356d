// A peer's buffer as bounce addresses it: on its RDMA devices if it is registered there. Otherwise
// by its id, through staging memory that its owner lends. Immutable; thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "sidecar/plan/move_plan.h"
#include "sidecar/transport/bounce/remote_stage.h"

namespace gantry::transport {

class BounceRemoteBuffer final : public RemoteTarget {
 public:
  // Returns null when bounce does not lead to the buffer.
  static const BounceRemoteBuffer* Of(const RemoteAllocation& remote) {
    if (remote.target == nullptr) return nullptr;
    return dynamic_cast<const BounceRemoteBuffer*>(remote.target->Over(wire::Path::kBounce));
  }
  // True when rdma does not lead to the buffer, so its owner stages it.
  static bool IsStaged(const RemoteAllocation& remote) {
    return RdmaRemoteBuffer::Of(remote) == nullptr;
  }

  BounceRemoteBuffer(std::shared_ptr<RemoteStage> stage, std::string id, uint64_t generation,
                     uint64_t length)
      : stage_(std::move(stage)), id_(std::move(id)), generation_(generation), length_(length) {}

  uint64_t length() const override { return length_; }
  const std::shared_ptr<RemoteStage>& stage() const { return stage_; }
  const std::string& id() const { return id_; }
  uint64_t generation() const { return generation_; }

 private:
  const std::shared_ptr<RemoteStage> stage_;
  const std::string id_;
  const uint64_t generation_;
  const uint64_t length_;
};

}  // namespace gantry::transport
