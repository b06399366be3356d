// Reads sysfs attributes: short files of one line that may disappear at any time. Stateless;
// thread-safe.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace gantry::topology {

// Returns the first line of a file, or an empty string.
std::string FirstLine(const std::filesystem::path& file);

// Returns the folder's entries in order; none if it does not exist.
std::vector<std::filesystem::path> Entries(const std::filesystem::path& folder);

// Returns the NUMA node of the device with this folder; -1: unknown.
int NumaNodeOf(const std::filesystem::path& device);

}  // namespace gantry::topology
