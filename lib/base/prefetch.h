// Asks for memory that is to be used soon, so that what many objects have in it comes at the same
// time: a lock between two of them has the next one's wait for it. Changes nothing. Thread-safe.
#pragma once

#include <cstddef>

namespace gantry {

inline void Prefetch(const void* at, size_t bytes) {
  constexpr size_t kLineBytes = 64;
  const auto* const first = static_cast<const char*>(at);
  for (size_t offset = 0; offset < bytes; offset += kLineBytes)
    __builtin_prefetch(first + offset, 1);
  if (bytes > 0) __builtin_prefetch(first + bytes - 1, 1);
}

}  // namespace gantry
