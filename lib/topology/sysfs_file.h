// How the attributes of sysfs are read: short files of one line, which may go away any time.
// Stateless; thread-safe.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace gantry::topology {

// The first line of a file, or nothing.
std::string FirstLine(const std::filesystem::path& file);

// Entries of a folder in order; none when it is not there.
std::vector<std::filesystem::path> Entries(const std::filesystem::path& folder);

// Of the device with this folder; -1: unknown.
int NumaNodeOf(const std::filesystem::path& device);

}  // namespace gantry::topology
