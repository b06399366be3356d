// Private memory of the engine (malloc, numpy, tensors of the CPU), which becomes shared memory
// where it is. Not thread-safe.
#pragma once

#include "connectors/nixl/agent/agent_card.h"
#include "connectors/nixl/agent/c_handles.h"
#include "lib/base/result.h"
#include "lib/base/unique_fd.h"

namespace gantry::nixl {

using ArenaHandle = std::shared_ptr<gantry_arena>;

class PrivateBlocks {
 public:
  // `adopts` false: nothing is adopted.
  explicit PrivateBlocks(bool adopts) : adopts_(adopts) {}

  // Adopts the block of malloc that the memory is a part of. Null: others made it shared memory.
  // `kept` gets the registration's own descriptor of the block. Where it is there already, of an
  // earlier lease, no page is replaced, as the engine may use them: kStaleGeneration where the
  // memory has gone meanwhile. kNotExportable says why a block is not adopted, and the way out.
  Result<ArenaHandle> Adopt(gantry_client* client, const MemoryCard& memory, UniqueFd* kept);

 private:
  void TellOnce(const MemoryCard& memory);

  const bool adopts_;
  bool has_told_ = false;
};

}  // namespace gantry::nixl
