// The blocks and buffers that a hold covers, and the check of a reader's request against them.
// Immutable; thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lib/base/result.h"
#include "lib/wire/hold.h"
#include "sidecar/messaging/block_runs.h"
#include "sidecar/registry/buffer_registry.h"

namespace gantry::engine {

class HoldCover {
 public:
  // kUnregistered or kOutOfRange for unregistered memory. kInvalidArgument for a buffer named
  // twice. Errors name the field.
  static Result<HoldCover> Of(const registry::BufferRegistry& registry,
                              const wire::HoldRequest& request);

  // kOutOfRange for blocks that are not covered. kStaleGeneration for buffers registered anew.
  Status Check(const std::vector<wire::HoldUsePart>& parts) const;
  // Memory measure: runs of adjacent blocks plus buffer names.
  size_t size() const { return size_; }

 private:
  struct HeldBuffer {
    uint64_t generation = 0;
    size_t group = 0;
  };
  Status CheckPart(const wire::HoldUsePart& part) const;

  std::vector<std::optional<BlockRuns>> groups_;  // nothing: all blocks
  std::map<std::string, HeldBuffer, std::less<>> buffers_;
  size_t size_ = 0;
};

}  // namespace gantry::engine
