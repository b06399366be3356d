#include "bench/bench_gpu_memory.h"

#include <utility>

#include "lib/base/clock.h"
#include "lib/gpu/gpu_drivers.h"

namespace gantry::bench {
namespace {

// As the allocators of engines take it: the driver maps an allocation of any other length by small
// pages, and copies of rows there have half the speed (docs/hardware_gotchas.md).
constexpr uint64_t kLargePage = 2 << 20;

}  // namespace

Result<std::unique_ptr<BenchGpuMemory>> BenchGpuMemory::Create(
    bool last, uint64_t bytes, std::optional<uint64_t> piece_bytes) {
  std::unique_ptr<BenchGpuMemory> made(new BenchGpuMemory());
  ASSIGN_OR_RETURN(std::unique_ptr<gpu::GpuDriver> driver, gpu::LoadGpuDriver());
  made->driver_ = std::move(driver);
  const auto& devices = made->driver_->devices();
  if (devices.empty()) {
    return Fail(ErrorCode::kNotFound, "a GPU driver is installed, but it sees no GPU",
                "--transport shm needs none");
  }
  const int ordinal = last ? devices.back().ordinal : devices.front().ordinal;
  ASSIGN_OR_RETURN(made->context_, made->driver_->OpenContext(ordinal));
  if (piece_bytes) {
    const uint64_t pieces = (bytes + *piece_bytes - 1) / *piece_bytes;
    ASSIGN_OR_RETURN(made->memory_,
                     made->context_->AllocatePieces(pieces * *piece_bytes, *piece_bytes));
  } else {
    ASSIGN_OR_RETURN(made->memory_,
                     made->context_->Allocate((bytes + kLargePage - 1) / kLargePage * kLargePage));
  }
  ASSIGN_OR_RETURN(made->stream_, made->context_->NewStream());
  return made;
}

Status BenchGpuMemory::Upload(std::span<const std::byte> image) {
  return context_->CopyFromHost(address(), image.data(), image.size());
}

Status BenchGpuMemory::Download(std::span<std::byte> image) {
  return context_->CopyToHost(image.data(), address(), image.size());
}

Status BenchGpuMemory::Reach(const BenchGpuMemory& from) {
  const Status direct = context_->EnablePeerAccess(*from.context_);  // or it goes through the host
  if (!direct && direct.error().code != ErrorCode::kPathUnavailable) return Fail(direct.error());
  return {};
}

Result<double> BenchGpuMemory::CopyWhole(const BenchGpuMemory& from, uint64_t offset,
                                         uint64_t bytes, int rounds) {
  RETURN_IF_ERROR(Reach(from));
  const TimePoint start = Clock::now();
  for (int i = 0; i < rounds; ++i) {
    RETURN_IF_ERROR(stream_->Copy(address() + offset, from.address() + offset, bytes));
  }
  RETURN_IF_ERROR(stream_->Synchronize());
  return SecondsBetween(start, Clock::now()) / rounds;
}

Result<double> BenchGpuMemory::CopyBlocks(const BenchGpuMemory& from,
                                          std::span<const uint64_t> to_blocks,
                                          std::span<const uint64_t> from_blocks, uint64_t offset,
                                          uint64_t block_bytes, int rounds) {
  const TimePoint start = Clock::now();
  for (int round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < to_blocks.size(); ++i) {
      RETURN_IF_ERROR(stream_->Copy(address() + (offset + to_blocks[i] * block_bytes),
                                    from.address() + (offset + from_blocks[i] * block_bytes),
                                    block_bytes));
    }
  }
  RETURN_IF_ERROR(stream_->Synchronize());
  return SecondsBetween(start, Clock::now()) / rounds;
}

}  // namespace gantry::bench
