// The size of a page, in which arenas are measured.
#pragma once

#include <cstdint>

namespace gantry::client {

inline constexpr uint64_t kPage = 4096;

}  // namespace gantry::client
