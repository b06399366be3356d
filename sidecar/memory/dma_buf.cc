#include "sidecar/memory/dma_buf.h"

#include <unistd.h>

#include <cerrno>

#include "lib/base/byte_range.h"

namespace gantry::memory {

Status CheckDmaBuf(uint64_t offset, uint64_t size, uint64_t allocation_size) {
  if (size == 0 || size % kDmaBufPageBytes != 0) {
    return Fail(ErrorCode::kInvalidArgument,
                "a dma-buf has whole pages, and not " + std::to_string(size) + " bytes",
                "export the allocation's range rounded to whole pages at both ends", "/size");
  }
  if (Fits(offset, allocation_size, size)) return {};
  return Fail(ErrorCode::kOutOfRange,
              "an allocation of " + std::to_string(allocation_size) + " bytes at " +
                  std::to_string(offset) + " is not within a dma-buf of " + std::to_string(size),
              "export all of the allocation, and say where in the dma-buf it begins", "/offset");
}

Status CheckDmaBufFd(int fd, uint64_t said_size) {
  // Of a dma-buf this asks alone: it has no place that could be moved.
  const off_t end = ::lseek(fd, 0, SEEK_END);
  if (end < 0) {
    Error error = SystemError(ErrorCode::kNotExportable, "the descriptor is no dma-buf", errno);
    return Fail(std::move(error).WithField("/fd_token"));
  }
  if (static_cast<uint64_t>(end) >= said_size) return {};
  return Fail(
      ErrorCode::kFdTooShort,
      "the dma-buf has " + std::to_string(end) + " bytes, and not " + std::to_string(said_size),
      "say the size that was exported", "/size");
}

}  // namespace gantry::memory
