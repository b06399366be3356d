// Private memory of the engine (malloc, numpy, tensors of the CPU), which becomes shared memory
// where it is. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "connectors/nixl/agent/agent_card.h"
#include "connectors/nixl/agent/c_handles.h"
#include "lib/base/mutex.h"
#include "lib/base/result.h"
#include "lib/base/unique_fd.h"

namespace gantry::nixl {

using ArenaHandle = std::shared_ptr<gantry_arena>;
// A block's own descriptor, which outlives leases. All registrations of a block have one.
using BlockDescriptor = std::shared_ptr<const UniqueFd>;

class PrivateBlocks {
 public:
  // `adopts` false: nothing is adopted.
  explicit PrivateBlocks(bool adopts) : adopts_(adopts) {}

  // Adopts the block of malloc that the memory is a part of. Null: others made it shared memory.
  // `kept` gets the descriptor of the block. Where it is there already, of an earlier lease, no
  // page is replaced, as the engine may use them: kStaleGeneration where the memory has gone
  // meanwhile. kNotExportable says why a block is not adopted, and the way out. Takes one to two
  // seconds for each GiB.
  Result<ArenaHandle> Adopt(gantry_client* client, const MemoryCard& memory, BlockDescriptor* kept);

 private:
  Result<BlockDescriptor> DescriptorOf(const gantry_arena& arena);
  void TellOnce(const MemoryCard& memory);

  const bool adopts_;
  std::atomic<bool> has_told_{false};
  Mutex mutex_;
  // By device and inode.
  std::map<std::pair<uint64_t, uint64_t>, std::weak_ptr<const UniqueFd>> known_ GUARDED_BY(mutex_);
};

}  // namespace gantry::nixl
