// Which blocks of which buffers a hold is about, and whether what a reader asks for is among them.
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
  // kUnregistered or kOutOfRange for what the workload has not registered, kInvalidArgument for a
  // buffer that is named twice; with the field.
  static Result<HoldCover> Of(const registry::BufferRegistry& registry,
                              const wire::HoldRequest& request);

  // kOutOfRange for what it is not about, kStaleGeneration for a buffer that was registered anew.
  Status Check(const std::vector<wire::HoldUsePart>& parts) const;
  // Runs of neighbouring blocks, and names of buffers: what it takes to remember it.
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
