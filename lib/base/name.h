// Names that users choose for workloads, buffers, peers and transfers. Thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "lib/base/result.h"

namespace gantry {

inline constexpr size_t kNameLengthMax = 128;

// Accepts 1 to 128 characters of [A-Za-z0-9._:+=-]; else kInvalidArgument with `field`. None of
// these needs escaping in a URL path or has a meaning in a reference ('/' and '@' separate its
// parts).
Status CheckName(std::string_view name, std::string_view field);

}  // namespace gantry
