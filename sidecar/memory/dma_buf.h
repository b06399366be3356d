// The memory of a GPU allocation as devices reach it that are no GPUs: exported by its owner, whose
// word is checked as far as a descriptor tells. Plain values; thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "lib/base/result.h"
#include "lib/base/unique_fd.h"

namespace gantry::memory {

inline constexpr uint64_t kDmaBufPageBytes = 4096;  // of which it has whole ones

struct DmaBuf {
  std::shared_ptr<const UniqueFd> fd;  // null: there is none
  uint64_t offset = 0;                 // of the allocation's first byte in it
  uint64_t size = 0;
  std::string why_none = {};  // as its owner said it; may be empty
};

// Whether what was said of a dma-buf fits its allocation. Errors name "/offset" or "/size".
Status CheckDmaBuf(uint64_t offset, uint64_t size, uint64_t allocation_size);
// Whether a descriptor can be one of `said_size` bytes. Errors name "/fd_token" or "/size".
Status CheckDmaBufFd(int fd, uint64_t said_size);

}  // namespace gantry::memory
