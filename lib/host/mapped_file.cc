#include "lib/host/mapped_file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>

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

UniqueFd OpenAgain(int fd, int access) {
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  return UniqueFd(::open(path.c_str(), access | O_CLOEXEC));
}

// The path may name another file by now, or a device, whose opening has effects. O_PATH has none.
UniqueFd OpenByPath(const OwnMapping& mapping, int access) {
  const UniqueFd at(::open(mapping.name.c_str(), O_PATH | O_CLOEXEC));
  struct stat info = {};
  struct statfs filesystem = {};
  if (!at.valid() || !StandsFor(at.get(), mapping) || ::fstat(at.get(), &info) != 0 ||
      !S_ISREG(info.st_mode) || ::fstatfs(at.get(), &filesystem) != 0 ||
      filesystem.f_type != TMPFS_MAGIC) {  // devices lie in a tmpfs, too
    return {};
  }
  UniqueFd fd = OpenAgain(at.get(), access);
  return fd.valid() ? std::move(fd) : OpenAgain(at.get(), O_RDONLY);
}

bool IsOpenFor(const UniqueFd& fd, int access) {
  return fd.valid() && (::fcntl(fd.get(), F_GETFL) & O_ACCMODE) == access;
}

// A descriptor that gives no more access than the mapping has: others get what it gives. Not valid
// where no descriptor is open, or only one that writes, and the path does not lead there.
UniqueFd FileOf(const OwnMapping& mapping, int access) {
  UniqueFd fd = DescriptorOf(mapping, access);
  if (IsOpenFor(fd, access)) return fd;
  UniqueFd opened = fd.valid() && access == O_RDONLY ? OpenAgain(fd.get(), O_RDONLY)
                                                     : OpenByPath(mapping, access);
  if (IsOpenFor(opened, access) || access == O_RDONLY) return opened;
  return fd.valid() ? std::move(fd) : std::move(opened);
}

// Memory whose file is none that a descriptor can be had of. Another file may have its numbers.
Status CheckHasFile(const OwnMapping& mapping, const char* way_out) {
  if (mapping.name.starts_with("/SYSV") || mapping.name == "/dev/zero (deleted)") {
    return Fail(ErrorCode::kNotExportable,
                "'" + mapping.name + "' is shared memory that no descriptor can be had of",
                way_out);
  }
  if (major(mapping.device) != 0) {
    return Fail(ErrorCode::kNotExportable,
                "'" + mapping.name + "' is a file on a disk, and not shared memory", way_out);
  }
  return {};
}

Status CheckAccess(const OwnMapping& mapping, const char* way_out) {
  if (mapping.access[0] == 'r' && mapping.access[2] != 'x') return {};
  return Fail(ErrorCode::kNotExportable,
              "a part of '" + mapping.name + "' is mapped as " + mapping.access +
                  ", neither readable nor plain",
              way_out);
}

}  // namespace

Result<SharedMapping> FindSharedMapping(uintptr_t address, uint64_t bytes, const char* way_out,
                                        const char* maps) {
  std::ifstream file(maps);
  std::optional<OwnMapping> run;  // those up to now that are one mapping of one file
  bool writes = false;            // this process, to any part of it
  Status plain;
  for (const OwnMapping& next : ReadMappings(file, 0, UINT64_MAX)) {
    const bool continues = run && Continues(*run, next);
    if (run && !continues && address < run->end) break;
    if (!continues) writes = false;
    writes |= next.access[1] == 'w';
    const bool is_touched = next.begin < address + bytes && address < next.end;
    if (is_touched && plain) plain = CheckAccess(next, way_out);
    if (continues) {
      run->end = next.end;
    } else {
      run = next;
    }
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
  RETURN_IF_ERROR(CheckHasFile(*run, way_out));
  RETURN_IF_ERROR(plain);
  UniqueFd fd = FileOf(*run, writes ? O_RDWR : O_RDONLY);
  if (!fd.valid()) {
    return Fail(ErrorCode::kNotExportable,
                "no descriptor of the shared memory '" + run->name +
                    "' with the mapping's access is open in this process, and its path does not "
                    "lead to one",
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
