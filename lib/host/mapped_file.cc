#include "lib/host/mapped_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <optional>
#include <string>
#include <utility>

#include "lib/host/own_mappings.h"

namespace gantry::host {
namespace {

std::string AddressText(uintptr_t address, uint64_t bytes) {
  char text[64];
  std::snprintf(text, sizeof(text), "0x%lx (%lu bytes)", address, bytes);
  return text;
}

// Both are mappings of one file, side by side in memory and in the file.
bool Continues(const OwnMapping& mapping, const OwnMapping& next) {
  return next.is_shared() && next.begin == mapping.end && next.device == mapping.device &&
         next.inode == mapping.inode &&
         next.offset == mapping.offset + (mapping.end - mapping.begin);
}

// The path may name another file by now, or a device, whose opening has effects.
UniqueFd OpenByPath(const OwnMapping& mapping) {
  struct stat info = {};
  if (::stat(mapping.name.c_str(), &info) != 0 || !S_ISREG(info.st_mode) ||
      info.st_ino != mapping.inode || info.st_dev != mapping.device) {
    return {};
  }
  for (const int mode : {O_RDWR, O_RDONLY}) {
    UniqueFd fd(::open(mapping.name.c_str(), mode | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
    if (fd.valid() && StandsFor(fd.get(), mapping)) return fd;
  }
  return {};
}

bool CanWrite(int fd) { return (::fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDWR; }

// Not valid where neither a descriptor is open nor the path leads there.
UniqueFd FileOf(const OwnMapping& mapping) {
  UniqueFd fd = DescriptorOf(mapping);
  if (fd.valid() && CanWrite(fd.get())) return fd;
  UniqueFd by_path = OpenByPath(mapping);
  const bool better = by_path.valid() && (!fd.valid() || CanWrite(by_path.get()));
  return better ? std::move(by_path) : std::move(fd);
}

}  // namespace

Result<SharedMapping> FindSharedMapping(uintptr_t address, uint64_t bytes, const char* way_out,
                                        const char* maps) {
  std::ifstream file(maps);
  std::optional<OwnMapping> run;  // those up to now that are one mapping of one file
  for (const OwnMapping& next : ReadMappings(file, 0, UINT64_MAX)) {
    if (run && Continues(*run, next)) {
      run->end = next.end;
      continue;
    }
    if (run && address < run->end) break;
    run = next;
  }
  if (!run || address < run->begin || address >= run->end) {
    return Fail(ErrorCode::kNotExportable,
                "nothing is mapped at " + AddressText(address, bytes) + " in this process",
                way_out);
  }
  if (!run->is_shared() || run->inode == 0) {
    return Fail(
        ErrorCode::kNotExportable,
        "the memory at " + AddressText(address, bytes) +
            " is private to this process (malloc, numpy or a tensor): no sidecar can map it",
        way_out);
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
  UniqueFd fd = FileOf(*run);
  if (!fd.valid()) {
    return Fail(ErrorCode::kNotExportable,
                "no descriptor of the shared memory '" + run->name +
                    "' is open in this process, and its path does not lead to it",
                "keep the descriptor of the mapping open, or " + std::string(way_out));
  }
  struct stat status = {};
  if (::fstat(fd.get(), &status) != 0)
    return Fail(SystemError(ErrorCode::kInternal, "fstat of shared memory", errno));
  const uint64_t mapped = run->end - run->begin;
  const auto size = static_cast<uint64_t>(status.st_size);
  if (address - run->begin + bytes > size) {
    return Fail(ErrorCode::kFdTooShort,
                "the memory at " + AddressText(address, bytes) + " goes on past the end of '" +
                    run->name + "', which has " + std::to_string(size) + " bytes",
                "make the file longer, or register less");
  }
  return SharedMapping{std::move(fd), run->begin, std::min(mapped, size), run->device, run->inode};
}

}  // namespace gantry::host
