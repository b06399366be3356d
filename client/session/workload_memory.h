// The memory of this workload: its arenas, and the buffers in them and on GPUs. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "client/include/gantry.h"
#include "client/memory/arena.h"
#include "client/session/buffer_set.h"
#include "client/session/buffer_sleep.h"
#include "client/session/memory_locator.h"
#include "client/session/private_memory.h"
#include "client/session/sidecar_link.h"
#include "lib/base/result.h"

namespace gantry::client {

class WorkloadMemory {
 public:
  // `link` outlives it.
  explicit WorkloadMemory(SidecarLink& link);

  MemoryLocator& locator() { return locator_; }
  BufferSet& buffers() { return buffers_; }
  BufferSleep& sleep() { return sleep_; }
  PrivateMemory& private_memory() { return private_memory_; }

  Result<std::shared_ptr<Arena>> AddArena(int fd, uint64_t bytes, void* address);
  Status CloseArena(Arena& arena, uint64_t drain_ms);
  // As CloseArena and Unregister, for the last time: what a sidecar that stands still does not hear
  // of it is told when it answers again.
  Status DropArena(Arena& arena);
  Status Drop(const BufferPointer& buffer);

  enum class Trust { kBelieve, kVerify };
  Result<std::vector<BufferPointer>> Register(std::span<const gantry_buffer_spec> specs,
                                              Trust trust);
  // `report`: the sidecar's answer, also when it is a problem; unchanged when it was not asked.
  Status Unregister(const BufferPointer& buffer, uint64_t drain_ms, std::string* report = nullptr);

 private:
  // The sidecar keeps the arena's descriptor no longer; nothing happens where it does not.
  Status ReleaseFd(Arena& arena);
  std::string BufferTarget(const RegisteredBuffer& buffer, uint64_t drain_ms) const;
  Result<std::vector<BufferPointer>> RegisterAll(std::span<const gantry_buffer_spec> specs,
                                                 Trust trust);
  // Registers with nonces, restores the bytes, and only then lets transfers use the buffers.
  Result<std::vector<BufferPointer>> RegisterVerified(std::vector<BufferRequest> requests);
  Result<std::vector<BufferPointer>> PostBuffers(std::vector<BufferRequest> requests);
  Result<std::vector<BufferPointer>> Keep(std::vector<BufferRequest> requests,
                                          const std::vector<BufferAnswer>& answers);

  SidecarLink& link_;
  MemoryLocator locator_;
  BufferSet buffers_;
  BufferSleep sleep_;
  PrivateMemory private_memory_;
};

}  // namespace gantry::client
