// Turns the caller's addresses into pieces of arenas and of GPU allocations. Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "client/include/gantry.h"
#include "client/memory/arena.h"
#include "client/memory/gpu_resolver.h"
#include "client/session/client_json.h"
#include "lib/base/result.h"

namespace gantry::client {

// kStaleGeneration where adopted memory was freed or mapped anew.
Status CheckStillThere(const std::vector<Extent>& extents);

class MemoryLocator {
 public:
  explicit MemoryLocator(GpuResolver::HandOver hand_over) : gpu_(std::move(hand_over)) {}

  ArenaTable& arenas() { return arenas_; }
  GpuResolver& gpu() { return gpu_; }

  // In order, for one of arenas and for one of a GPU's allocations. Exports nothing.
  Result<std::vector<gantry_extent>> Locate(const void* address, uint64_t bytes) const;
  // Checks a buffer that is to be registered and resolves its pieces. Memory of GPUs is exported.
  Result<BufferRequest> RequestFor(const gantry_buffer_spec& spec, size_t index);
  // Adds the pieces of what is asked. Errors name the piece below `field`.
  Status ResolvePieces(BufferRequest* request, const std::string& field);

 private:
  Result<std::vector<ResolvedPiece>> Resolve(const void* address, uint64_t bytes);

  ArenaTable arenas_;
  GpuResolver gpu_;
};

}  // namespace gantry::client
