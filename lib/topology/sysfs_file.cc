#include "lib/topology/sysfs_file.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <system_error>

namespace gantry::topology {
namespace fs = std::filesystem;

std::string FirstLine(const fs::path& file) {
  std::ifstream stream(file);
  std::string line;
  std::getline(stream, line);
  return line;
}

std::vector<fs::path> Entries(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    entries.push_back(entry->path());
  }
  std::sort(entries.begin(), entries.end());
  return entries;
}

int NumaNodeOf(const fs::path& device) {
  int node = -1;
  const std::string text = FirstLine(device / "numa_node");
  std::from_chars(text.data(), text.data() + text.size(), node);
  return node;
}

}  // namespace gantry::topology
