// An allocation on a GPU for the benchmark, filled and looked at through an image in host memory.
// Used by one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "bench/bench_ceiling.h"
#include "lib/gpu/shared/gpu_driver.h"

namespace gantry::bench {

class BenchGpuMemory {
 public:
  // On the first GPU of this machine, or on the last one: one allocation, or virtual memory of
  // pieces of this length.
  static Result<std::unique_ptr<BenchGpuMemory>> Create(bool last, uint64_t bytes,
                                                        std::optional<uint64_t> piece_bytes);

  gpu::DeviceAddress address() const { return memory_->range().base; }
  // The whole of it; both are done when they return.
  Status Upload(std::span<const std::byte> image);
  Status Download(std::span<std::byte> image);

  // Gets ready to copy from there.
  Status Reach(const BenchGpuMemory& from);
  // Seconds of one contiguous copy of `bytes` by the copy engine, from `offset` of `from` to that
  // of this: the fastest that there is between two GPUs. With several rounds, of each of so many
  // that are posted together and waited for once.
  Result<double> CopyWhole(const BenchGpuMemory& from, uint64_t offset, uint64_t bytes, int rounds);
  // Seconds of one copy for each block, into this: what engines do that do not batch. Rounds
  // likewise.
  Result<double> CopyBlocks(const BenchGpuMemory& from, std::span<const uint64_t> to_blocks,
                            std::span<const uint64_t> from_blocks, uint64_t offset,
                            uint64_t block_bytes, int rounds);

 private:
  BenchGpuMemory() = default;

  std::shared_ptr<gpu::GpuDriver> driver_;  // outlives what is below
  std::unique_ptr<gpu::GpuContext> context_;
  std::unique_ptr<gpu::GpuMemory> memory_;
  std::unique_ptr<gpu::GpuStream> stream_;
};

}  // namespace gantry::bench
