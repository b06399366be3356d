#include "sidecar/pod/mounted_folder.h"

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>

namespace gantry::pod {
namespace {

// Blanks, tabs, line ends and backslashes are written as three octal digits, proc(5).
std::string Unescaped(std::string_view text) {
  const auto is_octal = [](char c) { return c >= '0' && c <= '7'; };
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size() && is_octal(text[i + 1]) && is_octal(text[i + 2]) &&
        is_octal(text[i + 3])) {
      plain += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 +
                                 (text[i + 3] - '0'));
      i += 3;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

}  // namespace

std::optional<std::string> SourceOfMount(const std::string& folder, const std::string& root) {
  std::ifstream mounts(std::filesystem::path(root) / "proc/self/mountinfo");
  std::optional<std::string> source;
  for (std::string line; std::getline(mounts, line);) {
    std::istringstream words(line);
    std::string id, parent, device, within, place;
    if (!(words >> id >> parent >> device >> within >> place)) continue;
    if (Unescaped(place) == folder) source = Unescaped(within);  // the last one is on top
  }
  return source;
}

}  // namespace gantry::pod
