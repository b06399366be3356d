// A copy with non-temporal stores. It does not read the destination first, which saves a third of
// the memory traffic. For bytes that are not read soon or do not fit a cache. Stateless;
// thread-safe.
#pragma once

#include <cstddef>

namespace gantry::worker {

// Overlapping ranges are copied plainly. Other threads see the bytes in order only after this
// thread's next FenceStreams.
void StreamBytes(std::byte* to, const std::byte* from, size_t bytes);
void FenceStreams();

}  // namespace gantry::worker
