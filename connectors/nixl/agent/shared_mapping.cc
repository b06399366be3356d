#include "connectors/nixl/agent/shared_mapping.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace gantry::nixl {
namespace {

constexpr char kWayOut[] =
    "allocate it by gantry_nixl.host_memory(bytes) or gantry.Client.arena(bytes), or register "
    "memory of a GPU";

struct MapLine {
  uintptr_t begin = 0;
  uintptr_t end = 0;
  bool shared = false;
  uint64_t offset = 0;
  dev_t device = 0;
  ino_t inode = 0;
  std::string name;
};

std::optional<MapLine> ParseMapLine(const std::string& line) {
  unsigned long begin = 0, end = 0, offset = 0, inode = 0;
  unsigned major_number = 0, minor_number = 0;
  char access[5] = {};
  int name_at = 0;
  const int found = std::sscanf(line.c_str(), "%lx-%lx %4s %lx %x:%x %lu %n", &begin, &end, access,
                                &offset, &major_number, &minor_number, &inode, &name_at);
  if (found < 7) return std::nullopt;
  return MapLine{begin,
                 end,
                 access[3] == 's',
                 offset,
                 makedev(major_number, minor_number),
                 inode,
                 line.substr(static_cast<size_t>(name_at))};
}

std::string AddressText(uintptr_t address, uint64_t bytes) {
  char text[64];
  std::snprintf(text, sizeof(text), "0x%lx (%lu bytes)", address, bytes);
  return text;
}

// The mappings of one file that lie side by side, in memory and in the file.
bool Continues(const MapLine& line, const MapLine& next) {
  return next.shared && next.begin == line.end && next.device == line.device &&
         next.inode == line.inode && next.offset == line.offset + (line.end - line.begin);
}

bool IsFileOf(const MapLine& line, int fd) {
  struct stat status = {};
  return ::fstat(fd, &status) == 0 && status.st_ino == line.inode && status.st_dev == line.device;
}

Result<UniqueFd> OpenDescriptorOf(const MapLine& line) {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc/self/fd"), ::closedir);
  UniqueFd readable;
  while (const dirent* entry = folder ? ::readdir(folder.get()) : nullptr) {
    const std::string_view name = entry->d_name;
    int fd = -1;
    if (std::from_chars(name.data(), name.data() + name.size(), fd).ec != std::errc()) continue;
    if (!IsFileOf(line, fd)) continue;
    // Another thread may put another file in the place of the number at any time, so the copy is
    // what counts.
    UniqueFd copy(::fcntl(fd, F_DUPFD_CLOEXEC, 3));
    if (!copy.valid() || !IsFileOf(line, copy.get())) continue;
    if ((::fcntl(copy.get(), F_GETFL) & O_ACCMODE) == O_RDWR) return copy;
    readable = std::move(copy);
  }
  if (readable.valid()) return readable;
  return Fail(ErrorCode::kNotExportable,
              "no descriptor of the shared memory '" + line.name + "' is open in this process",
              "keep the descriptor of the mapping open, or " + std::string(kWayOut));
}

}  // namespace

Result<SharedMapping> FindSharedMapping(uintptr_t address, uint64_t bytes, const char* maps) {
  std::ifstream file(maps);
  std::optional<MapLine> run;  // the lines up to now that are one mapping of one file
  std::string text;
  while (std::getline(file, text)) {
    const auto line = ParseMapLine(text);
    if (!line) continue;
    if (run && Continues(*run, *line)) {
      run->end = line->end;
      continue;
    }
    if (run && address < run->end) break;
    run = line;
  }
  if (!run || address < run->begin || address >= run->end) {
    return Fail(ErrorCode::kNotExportable,
                "nothing is mapped at " + AddressText(address, bytes) + " in this process",
                kWayOut);
  }
  if (!run->shared || run->inode == 0) {
    return Fail(
        ErrorCode::kNotExportable,
        "the memory at " + AddressText(address, bytes) +
            " is private to this process (malloc, numpy or a tensor): no sidecar can map it",
        kWayOut);
  }
  if (bytes > run->end - address) {
    return Fail(ErrorCode::kNotExportable,
                "the memory at " + AddressText(address, bytes) + " goes on past the end of '" +
                    run->name + "'",
                "register each mapping by itself");
  }
  if (run->offset != 0) {
    return Fail(ErrorCode::kNotExportable,
                "'" + run->name + "' is mapped from its byte " + std::to_string(run->offset) +
                    " on, and its beginning is not in front of it",
                "map the file from its beginning on");
  }
  ASSIGN_OR_RETURN(UniqueFd fd, OpenDescriptorOf(*run));
  struct stat status = {};
  if (::fstat(fd.get(), &status) != 0)
    return Fail(SystemError(ErrorCode::kInternal, "fstat of shared memory", errno));
  const uint64_t mapped = run->end - run->begin;
  return SharedMapping{std::move(fd), run->begin,
                       std::min(mapped, static_cast<uint64_t>(status.st_size)), run->device,
                       run->inode};
}

}  // namespace gantry::nixl
