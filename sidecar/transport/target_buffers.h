// This sidecar's buffers as peers' requests name them, without mappings. This folder owns the
// interface; code above implements it over the registry. Thread-safe; called on I/O threads, so it
// never blocks.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "lib/base/result.h"
#include "sidecar/memory/mapped_allocation.h"
#include "sidecar/memory/piece_map.h"

namespace gantry::transport {

// A buffer in use: its memory stays mapped while this object lives.
class TargetBuffer {
 public:
  virtual ~TargetBuffer() = default;
  virtual const memory::PieceMap& pieces() const = 0;
  virtual const std::vector<std::shared_ptr<const memory::MappedAllocation>>& allocations()
      const = 0;
};

class TargetBuffers {
 public:
  virtual ~TargetBuffers() = default;
  // Returns the active buffer with this id and exactly this generation, if the session's initiator
  // has the access. Otherwise kNotFound, kStaleGeneration, kDraining or kPermissionDenied.
  virtual Result<std::unique_ptr<TargetBuffer>> Acquire(std::string_view session,
                                                        std::string_view buffer_id,
                                                        uint64_t generation, bool for_write) = 0;
};

}  // namespace gantry::transport
