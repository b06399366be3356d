// The command that puts NIXL's backend into an engine's pod: an init container of the image runs
// it. Stateless; thread-safe.
#pragma once

#include <filesystem>
#include <vector>

#include "gantryctl/command_line.h"
#include "lib/base/result.h"

namespace gantry::gantryctl {

// Copies the files of `from` into `to`, which is made where it is missing; files that are there are
// replaced. All users can read the copies. Returns their paths. kNotFound: `from` has no backend.
Result<std::vector<std::filesystem::path>> CopyNixlPlugin(const std::filesystem::path& from,
                                                          const std::filesystem::path& to);

// Copies them from where they were installed, beside this program, and prints the paths.
int RunNixlPlugin(const CommandLine& line);

}  // namespace gantry::gantryctl
