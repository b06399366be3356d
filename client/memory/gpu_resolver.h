// Memory of GPUs: GpuResolver is the only place that turns a device address into (allocation,
// offset). It exports each allocation once, for as long as a buffer uses it. No call changes what
// is current for its caller. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lib/base/mutex.h"
#include "lib/base/result.h"
#include "lib/base/unique_fd.h"
#include "lib/gpu/shared/gpu_pointers.h"
#include "lib/wire/registration_request.h"

namespace gantry::client {

// An allocation, or one piece of virtual memory, as the sidecar is told of it. Immutable once it is
// resolved.
struct GpuAllocation {
  gpu::AddressRange range;
  uint64_t buffer_id = 0;  // the driver's; another one once the memory is allocated again
  std::string device_uuid;
  gpu::IpcHandle ipc_handle;          // of the whole allocation, unless there is a token
  std::string fd_token;               // of a piece of virtual memory, or of a dma-buf
  std::optional<uint64_t> fd_offset;  // in that dma-buf
  // For RDMA, where the sidecar wants it; without a token there is none, and why.
  wire::DmaBufSpec dma_buf;
  std::string no_dma_buf_because;
};

// Bytes [offset, offset + bytes) of one allocation.
struct GpuPiece {
  std::shared_ptr<const GpuAllocation> allocation;
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

// The same, of an allocation that is not exported.
struct GpuExtent {
  gpu::PointerInfo info;
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

class GpuResolver {
 public:
  // Gives descriptors to the sidecar, at most kFdsPerMessageMax, and answers with their tokens.
  using HandOver = std::function<Result<std::vector<std::string>>(std::span<const int> fds)>;
  explicit GpuResolver(HandOver hand_over) : hand_over_(std::move(hand_over)) {}
  // From now on dma-bufs are handed over, too, of what is exported. Before the first Resolve.
  void WantDmaBufs() { wants_dma_bufs_ = true; }

  // Where [address, address + bytes) lies, in order: several extents where virtual memory is mapped
  // side by side. kNotFound when this process has loaded no GPU driver, kNotExportable when a byte
  // of it cannot be shared or is no memory of a GPU. Exports nothing.
  static Result<std::vector<GpuExtent>> Locate(uint64_t address, uint64_t bytes);

  // The same, exported. An allocation stays so while somebody keeps a piece of it.
  Result<std::vector<GpuPiece>> Resolve(uint64_t address, uint64_t bytes) EXCLUDES(mutex_);

  // kStaleGeneration when the memory is not any more what the piece was resolved to.
  static Status CheckCurrent(const GpuPiece& piece);

  // Forgets the allocations of which nobody keeps a piece; the tokens are to be released.
  std::vector<std::string> TakeUnused() EXCLUDES(mutex_);

 private:
  using Key = std::pair<uint64_t, uint64_t>;  // base and buffer id
  static Key KeyOf(const gpu::PointerInfo& info) {
    return {NumberOf(info.allocation.base), info.buffer_id};
  }

  // Sets what stands for the allocation; what it answers is to be handed over, unless it is none.
  static Result<UniqueFd> ExportOne(const gpu::GpuPointers& driver, const gpu::PointerInfo& info,
                                    GpuAllocation* made);

  // Descriptors on their way to the sidecar. The descriptors are its own from then on:
  // kept here they would keep the memory alive.
  struct Outgoing {
    std::vector<std::shared_ptr<GpuAllocation>> pieces;
    std::vector<UniqueFd> fds;
  };

  Status Export(std::span<const GpuExtent> extents) REQUIRES(mutex_);
  // What is new from then on is added to `made`, also by an export that fails.
  Status ExportNew(std::span<const GpuExtent> extents,
                   std::vector<std::shared_ptr<GpuAllocation>>* made) REQUIRES(mutex_);
  // Empties it.
  Status SendOff(Outgoing* outgoing, std::vector<std::shared_ptr<GpuAllocation>>* made)
      REQUIRES(mutex_);

  const HandOver hand_over_;
  bool wants_dma_bufs_ = false;  // constant after the first Resolve
  Mutex mutex_;                  // also while an allocation is exported: each is exported once
  std::map<Key, std::shared_ptr<const GpuAllocation>> exported_ GUARDED_BY(mutex_);
};

}  // namespace gantry::client
