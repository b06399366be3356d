// A copy that leaves the caches as they are: what it writes goes to memory without being read
// first, which is a third of what a plain copy moves there. For bytes that nobody reads soon, or
// that are too many to stay in a cache. Stateless; thread-safe.
#pragma once

#include <cstddef>

namespace gantry::worker {

// The two may overlap: then it is a plain copy. Other threads see the bytes in the order of writes
// only behind the next FenceStreams of this thread.
void StreamBytes(std::byte* to, const std::byte* from, size_t bytes);
void FenceStreams();

}  // namespace gantry::worker
