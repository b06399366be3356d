// The root of the source tree, found from the program's place in build/PRESET/bin. A definition of
// the compiler would keep other checkouts from the compiler cache.
#pragma once

#include <filesystem>

namespace gantry::testing {

inline std::filesystem::path SourceFolder() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / "../../..";
}

}  // namespace gantry::testing
