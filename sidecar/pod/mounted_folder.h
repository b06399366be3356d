// What is mounted where, as /proc/self/mountinfo says. Stateless; thread-safe.
#pragma once

#include <optional>
#include <string>

namespace gantry::pod {

// The path that the mount at `folder` has in its own file system: what a folder of the host that
// was mounted here is called there. Nothing: no mount is exactly there. `root` is "/" but for
// tests.
std::optional<std::string> SourceOfMount(const std::string& folder, const std::string& root = "/");

}  // namespace gantry::pod
