// Looks up mounts in /proc/self/mountinfo. Stateless; thread-safe.
#pragma once

#include <optional>
#include <string>

namespace gantry::pod {

// Returns the path of the mount's root in its own file system. For a mounted host folder that is
// its path on the host. Nothing: no mount is exactly there. `root` is "/" except in tests.
std::optional<std::string> SourceOfMount(const std::string& folder, const std::string& root = "/");

}  // namespace gantry::pod
