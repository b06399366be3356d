// A sealed memfd, as a workload would hand it over, mapped and pre-faulted here, with a pattern to
// verify copies by. Used by one thread at a time.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <string>

#include "lib/base/unique_fd.h"
#include "sidecar/memory/memory_mapper.h"

namespace gantry::testing {

class TestArena {
 public:
  struct Untouched {};
  struct Unsealed {};

  explicit TestArena(size_t size, uint64_t seed = 1) : TestArena(size, Untouched()) { Fill(seed); }
  // Zeros, of which no page is there yet.
  TestArena(size_t size, Untouched) : TestArena(size, Seals{F_SEAL_SHRINK | F_SEAL_GROW}) {}
  // Its file can shrink.
  TestArena(size_t size, Unsealed) : TestArena(size, Seals{0}) { Fill(1); }
  TestArena(const TestArena&) = delete;
  TestArena& operator=(const TestArena&) = delete;
  ~TestArena() { ::munmap(data_, size_); }

  // Bytes that differ at every offset of interest and between seeds; seed 0 clears them.
  void Fill(uint64_t seed) {
    if (seed == 0) std::memset(data_, 0, size_);
    if (seed == 0) return;
    uint64_t state = seed * 0x9e3779b97f4a7c15ULL + 1;
    for (size_t i = 0; i < size_; ++i) {
      if (i % 8 == 0) state = state * 6364136223846793005ULL + 1442695040888963407ULL;
      data_[i] = static_cast<uint8_t>(state >> (8 * (i % 8)));
    }
  }

  uint8_t* data() const { return data_; }
  size_t size() const { return size_; }
  std::span<uint8_t> bytes() const { return {data_, size_}; }
  UniqueFd Fd() const { return *fd_->Duplicate(); }
  UniqueFd ReadOnlyFd() const {
    const std::string path = "/proc/self/fd/" + std::to_string(fd_->get());
    return UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  }
  memory::AllocationSource source(bool writable = true) const {
    return {wire::MemoryKind::kHost, fd_, size_, writable};
  }
  // A GPU's memory: an allocation of `bytes` that begins at `offset` of a dma-buf, which this is.
  memory::AllocationSource gpu_source(uint64_t offset, uint64_t bytes) const {
    memory::AllocationSource source = {wire::MemoryKind::kGpu, fd_, bytes, true};
    source.gpu = {wire::GpuExport::kPiece, "GPU-1", offset + 1, 1};
    source.dma_buf = {fd_, offset, size_};
    return source;
  }

 private:
  struct Seals {
    int seals;
  };
  TestArena(size_t size, Seals seals) : size_(size), fd_(MakeFd(size, seals.seals)) {
    void* mapped = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd_->get(), 0);
    if (mapped == MAP_FAILED) std::abort();
    data_ = static_cast<uint8_t*>(mapped);
  }
  static std::shared_ptr<const UniqueFd> MakeFd(size_t size, int seals) {
    auto fd = std::make_shared<const UniqueFd>(
        ::memfd_create("test-arena", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!fd->valid() || ::ftruncate(fd->get(), static_cast<off_t>(size)) != 0 ||
        ::fcntl(fd->get(), F_ADD_SEALS, seals) != 0) {
      std::abort();
    }
    return fd;
  }

  const size_t size_;
  const std::shared_ptr<const UniqueFd> fd_;
  uint8_t* data_ = nullptr;
};

}  // namespace gantry::testing
