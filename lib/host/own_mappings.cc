#include "lib/host/own_mappings.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <fstream>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "lib/base/range_text.h"

namespace gantry::host {
namespace {

constexpr std::string_view kFlagsKey = "VmFlags:";

// nullopt: the line is one of the fields below a mapping.
std::optional<OwnMapping> ReadHeader(const std::string& line) {
  unsigned long begin = 0, end = 0, offset = 0, inode = 0;
  unsigned major_number = 0, minor_number = 0;
  char access[5] = {};
  int name_at = 0;
  const int found = std::sscanf(line.c_str(), "%lx-%lx %4s %lx %x:%x %lu %n", &begin, &end, access,
                                &offset, &major_number, &minor_number, &inode, &name_at);
  if (found < 7) return std::nullopt;
  OwnMapping mapping;
  mapping.begin = begin;
  mapping.end = end;
  mapping.access = access;
  mapping.offset = offset;
  mapping.device = makedev(major_number, minor_number);
  mapping.inode = inode;
  mapping.name = line.substr(static_cast<size_t>(name_at));
  return mapping;
}

Result<std::vector<OwnMapping>> MappingsIn(const char* file, uint64_t begin, uint64_t end) {
  std::ifstream text(file);
  if (!text) {
    return Fail(ErrorCode::kNotExportable, "this process cannot read " + std::string(file),
                "mount /proc in the workload's container");
  }
  std::vector<OwnMapping> found = ReadMappings(text, begin, end);
  uint64_t covered = begin;
  for (const OwnMapping& mapping : found) {
    if (mapping.begin > covered) break;
    covered = mapping.end;
  }
  if (covered >= end) return found;
  return Fail(
      ErrorCode::kInvalidArgument,
      RangeText(begin, end - begin) + " has a hole: nothing is mapped at 0x" + HexOf(covered),
      "pass the address and the bytes of memory that is allocated", "address");
}

}  // namespace

uint64_t PageBytes() { return static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)); }

bool OwnMapping::has(const char* flag) const {
  return flags.find(" " + std::string(flag) + " ") != std::string::npos;
}

std::vector<OwnMapping> ReadMappings(std::istream& text, uint64_t begin, uint64_t end) {
  std::vector<OwnMapping> found;
  bool wanted = false;
  for (std::string line; std::getline(text, line);) {
    if (auto mapping = ReadHeader(line)) {
      if (mapping->begin >= end) break;
      wanted = mapping->end > begin;
      if (wanted) found.push_back(*std::move(mapping));
    } else if (wanted && line.starts_with(kFlagsKey)) {
      found.back().flags = line.substr(kFlagsKey.size()) + " ";
    }
  }
  return found;
}

Result<std::vector<OwnMapping>> MappingsOf(uint64_t begin, uint64_t end) {
  return MappingsIn("/proc/self/maps", begin, end);
}

Result<std::vector<OwnMapping>> FlaggedMappingsOf(uint64_t begin, uint64_t end) {
  return MappingsIn("/proc/self/smaps", begin, end);
}

bool StandsFor(int fd, const OwnMapping& mapping) {
  struct stat info = {};
  return ::fstat(fd, &info) == 0 && info.st_ino == mapping.inode && info.st_dev == mapping.device;
}

bool WasReplaced(const OwnMapping& mapping) {
  static const std::string kShownName = std::string("/memfd:") + kReplacedPagesFile;
  return mapping.is_shared() && mapping.name.starts_with(kShownName);
}

UniqueFd DescriptorOf(const OwnMapping& mapping, int access) {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc/self/fd"), ::closedir);
  UniqueFd other;
  while (const dirent* entry = folder ? ::readdir(folder.get()) : nullptr) {
    const std::string_view name = entry->d_name;
    int number = -1;
    if (std::from_chars(name.data(), name.data() + name.size(), number).ec != std::errc()) continue;
    if (!StandsFor(number, mapping)) continue;
    // Another thread may put another file in the place of the number at any time, so the copy is
    // what counts.
    UniqueFd copy(::fcntl(number, F_DUPFD_CLOEXEC, 3));
    if (!copy.valid() || !StandsFor(copy.get(), mapping)) continue;
    const int flags = ::fcntl(copy.get(), F_GETFL);
    if ((flags & O_PATH) != 0 || (flags & O_ACCMODE) == O_WRONLY) continue;
    if ((flags & O_ACCMODE) == access) return copy;
    other = std::move(copy);
  }
  return other;
}

}  // namespace gantry::host
