// A memfd as a workload would register it, sealed and pre-faulted, with the test's own mapping of
// it. Used by one thread at a time.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <span>

#include "sidecar/memory/host_memory.h"
#include "sidecar/memory/memory_mapper.h"

namespace gantry {

class SealedMemory {
 public:
  explicit SealedMemory(uint64_t bytes)
      : fd_(std::make_shared<const UniqueFd>(MakeFd(bytes))), mapping_(MapOf(*fd_, bytes)) {}

  std::byte* data() const { return mapping_.data(); }
  std::span<std::byte> bytes() const { return {mapping_.data(), mapping_.size()}; }
  uint64_t size() const { return mapping_.size(); }
  const std::shared_ptr<const UniqueFd>& fd() const { return fd_; }

  memory::AllocationSource source(bool writable = true) const {
    return {wire::MemoryKind::kHost, fd_, size(), writable};
  }
  // Byte i becomes a function of i and the seed.
  void Fill(uint8_t seed) const {
    for (uint64_t i = 0; i < size(); ++i) data()[i] = PatternAt(i, seed);
  }
  static std::byte PatternAt(uint64_t offset, uint8_t seed) {
    return static_cast<std::byte>((offset * 31 + (offset >> 8) * 7 + seed) & 0xff);
  }

 private:
  static int MakeFd(uint64_t bytes) {
    const int fd = ::memfd_create("gantry-test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0 || ::fallocate(fd, 0, 0, static_cast<off_t>(bytes)) != 0 ||
        ::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) != 0) {
      std::abort();
    }
    return fd;
  }
  static memory::HostMapping MapOf(const UniqueFd& fd, uint64_t bytes) {
    auto mapping = memory::HostMapping::Create(fd.get(), bytes, /*writable=*/true);
    if (!mapping) std::abort();
    return std::move(*mapping);
  }

  std::shared_ptr<const UniqueFd> fd_;
  memory::HostMapping mapping_;
};

}  // namespace gantry
