#include "lib/host/control_group.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <optional>

#include "lib/base/unique_fd.h"

namespace gantry::host {
namespace {

namespace fs = std::filesystem;

// Whether `name` is one of the words between commas.
bool Names(std::string_view list, std::string_view name) {
  while (!list.empty()) {
    const size_t end = std::min(list.find(','), list.size());
    if (list.substr(0, end) == name) return true;
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return false;
}

struct Membership {
  bool unified = false;
  std::string path;
};

// Lines "4:memory:/a/b" of version 1, "0::/a/b" of version 2. A machine may have both; each
// controller is in one of them.
std::optional<Membership> MembershipIn(std::string_view controller, const fs::path& file) {
  std::optional<Membership> unified;
  for (const std::string& line : LinesOf(file)) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (Names(controllers, controller)) return Membership{false, line.substr(second + 1)};
    if (controllers.empty()) unified = Membership{true, line.substr(second + 1)};
  }
  return unified;
}

struct Mount {
  std::string root;   // the group that is mounted
  std::string point;  // where
};

// Lines "36 35 0:30 ROOT POINT OPTIONS [TAGS...] - TYPE SOURCE SUPER_OPTIONS".
std::vector<Mount> MountsOf(std::string_view controller, bool unified, const fs::path& file) {
  std::vector<Mount> mounts;
  for (const std::string& line : LinesOf(file)) {
    const std::vector<std::string> words = WordsOf(line);
    const auto dash = std::find(words.begin(), words.end(), "-");
    if (words.size() < 5 || words.end() - dash < 4) continue;
    const std::string &type = dash[1], &options = dash[3];
    const bool fits = unified ? type == "cgroup2" : type == "cgroup" && Names(options, controller);
    if (fits) mounts.push_back({words[3], words[4]});
  }
  return mounts;
}

// `path` as seen from the group `top`; nothing when it is not below it.
std::optional<fs::path> Below(const std::string& top, const std::string& path) {
  const fs::path relative = fs::path(path).lexically_relative(top);
  if (relative.empty() || *relative.begin() == "..") return std::nullopt;
  return relative == "." ? fs::path() : relative;
}

}  // namespace

// Not by streams: libgantry would take objects along that define what libstdc++ does.
std::vector<std::string> LinesOf(const fs::path& file) {
  const UniqueFd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  char part[4096];
  for (ssize_t bytes = 0; fd.valid() && (bytes = ::read(fd.get(), part, sizeof(part))) > 0;) {
    text.append(part, static_cast<size_t>(bytes));
  }
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

std::vector<std::string> WordsOf(std::string_view line) {
  std::vector<std::string> words;
  while (true) {
    line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
    if (line.empty()) return words;
    const size_t end = std::min(line.find(' '), line.size());
    words.emplace_back(line.substr(0, end));
    line.remove_prefix(end);
  }
}

std::string FirstLine(const fs::path& file) {
  const std::vector<std::string> lines = LinesOf(file);
  return lines.empty() ? std::string() : lines.front();
}

ControlGroup ControlGroupOf(std::string_view controller, const fs::path& root) {
  ControlGroup group;
  const auto membership = MembershipIn(controller, root / "proc/self/cgroup");
  if (!membership) return group;
  group.unified = membership->unified;
  const auto mounts = MountsOf(controller, group.unified, root / "proc/self/mountinfo");
  if (mounts.empty()) return group;
  const Mount* chosen = &mounts.front();
  std::optional<fs::path> below;
  for (const Mount& mount : mounts) {
    below = Below(mount.root, membership->path);
    if (!below) continue;
    chosen = &mount;
    break;
  }
  const fs::path point = root / fs::path(chosen->point).relative_path();
  // A container whose namespaces were made apart may not see its group below the mount's root.
  for (fs::path relative = below.value_or(fs::path()); !relative.empty();
       relative = relative.parent_path()) {
    group.folders.push_back(point / relative);
  }
  group.folders.push_back(point);
  return group;
}

}  // namespace gantry::host
