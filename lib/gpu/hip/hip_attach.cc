#include "lib/gpu/hip/hip_attach.h"

#include <unistd.h>

#include <cerrno>
#include <string>

#include "lib/base/byte_range.h"

namespace gantry::gpu {

Mutex& AttachMutex() {
  static Mutex mutex;
  return mutex;
}

Status CheckDmaBufHolds(int fd, uint64_t offset, uint64_t size) {
  const off_t end = ::lseek(fd, 0, SEEK_END);
  if (end < 0) {
    return Fail(SystemError(ErrorCode::kNotExportable, "the descriptor is no dma-buf", errno));
  }
  if (size != 0 && Fits(offset, size, static_cast<uint64_t>(end))) return {};
  return Fail(ErrorCode::kFdTooShort, "the dma-buf has " + std::to_string(end) + " bytes, not " +
                                          std::to_string(size) + " at " + std::to_string(offset));
}

}  // namespace gantry::gpu
