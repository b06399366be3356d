// The version of this build, from CMakeLists.txt. Thread-safe.
#pragma once

#include <string_view>

namespace gantry {

std::string_view Version();  // "major.minor.patch"

}  // namespace gantry
