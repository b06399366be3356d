// On which NUMA node the bytes of mapped memory lie, by asking the kernel for some of its pages.
// Stateless; thread-safe.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace gantry::transport {

// -1: on several, or the kernel does not say, as in containers that may not ask. Pages that do not
// exist yet are made.
int MemoryNodeOf(const std::vector<std::span<const std::byte>>& memory);

}  // namespace gantry::transport
