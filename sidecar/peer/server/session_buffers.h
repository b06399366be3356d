// Local buffers for data connections and copies of peers' sessions. A session may use what was
// described to it, with the access it was told, while the buffer is active. Thread-safe.
#pragma once

#include <memory>
#include <string_view>

#include "sidecar/peer/server/initiator_table.h"
#include "sidecar/registry/buffer_registry.h"
#include "sidecar/transport/target_buffers.h"

namespace gantry::peer {

class SessionBuffers final : public transport::TargetBuffers {
 public:
  SessionBuffers(const registry::BufferRegistry& registry, const InitiatorTable& initiators)
      : registry_(registry), initiators_(initiators) {}

  Result<std::unique_ptr<transport::TargetBuffer>> Acquire(std::string_view session,
                                                           std::string_view buffer_id,
                                                           uint64_t generation,
                                                           bool for_write) override;

 private:
  const registry::BufferRegistry& registry_;
  const InitiatorTable& initiators_;
};

}  // namespace gantry::peer
