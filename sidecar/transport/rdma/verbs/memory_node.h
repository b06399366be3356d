// Finds the NUMA node of mapped memory by querying the kernel for some of its pages. Stateless;
// thread-safe.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace gantry::transport {

// -1: on several nodes, or not permitted, as in some containers. Missing pages are created.
int MemoryNodeOf(const std::vector<std::span<const std::byte>>& memory);

}  // namespace gantry::transport
