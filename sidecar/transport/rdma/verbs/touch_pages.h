// Touches pages with several threads, since one would take seconds. Stateless; thread-safe.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "lib/base/result.h"

namespace gantry::transport {

struct TouchRange {
  std::span<std::byte> bytes;  // mapped
  bool writable = false;
};

// Uses `threads` threads, including the caller. Returns when all are done, with the first failure.
Status TouchPages(const std::vector<TouchRange>& ranges, int threads);

}  // namespace gantry::transport
