// A GPU allocation as non-GPU devices reach it: its owner exports it as a dma-buf. The owner's
// statement is checked as far as a descriptor allows. Plain values; thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "lib/base/result.h"
#include "lib/base/unique_fd.h"

namespace gantry::memory {

inline constexpr uint64_t kDmaBufPageBytes = 4096;  // a dma-buf consists of whole pages

struct DmaBuf {
  std::shared_ptr<const UniqueFd> fd;  // null: there is none
  uint64_t offset = 0;                 // the allocation's first byte within the dma-buf
  uint64_t size = 0;
  std::string why_none = {};  // as its owner reported; may be empty
};

// Checks that the stated dma-buf fits its allocation. Errors name "/offset" or "/size".
Status CheckDmaBuf(uint64_t offset, uint64_t size, uint64_t allocation_size);
// Checks that a descriptor can be a dma-buf of `said_size` bytes. Errors name "/fd_token" or
// "/size".
Status CheckDmaBufFd(int fd, uint64_t said_size);

}  // namespace gantry::memory
