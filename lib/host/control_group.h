// Where the kernel shows the control group (cgroup) of this process, version 1 or 2.
// Stateless; thread-safe.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace gantry::host {

// The lines of a file of the kernel; nothing where it cannot be read.
std::vector<std::string> LinesOf(const std::filesystem::path& file);
// What is between spaces.
std::vector<std::string> WordsOf(std::string_view line);
// The first line, or nothing.
std::string FirstLine(const std::filesystem::path& file);

// Folders of one controller: the process's own group first, then each above it. A container sees
// them up to its own root. None: the controller is not mounted here.
struct ControlGroup {
  bool unified = false;  // version 2
  std::vector<std::filesystem::path> folders;
};

// `controller` is "memory", "cpu" and so on; `root` holds proc and sys.
ControlGroup ControlGroupOf(std::string_view controller, const std::filesystem::path& root = "/");

}  // namespace gantry::host
