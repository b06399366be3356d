#include "connectors/nixl/agent/shared_mapping.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <optional>
#include <string>
#include <utility>

#include "lib/host/own_mappings.h"

namespace gantry::nixl {
namespace {

constexpr char kWayOut[] =
    "allocate it by gantry_nixl.host_memory(bytes) or gantry.Client.arena(bytes), or register "
    "memory of a GPU";

std::string AddressText(uintptr_t address, uint64_t bytes) {
  char text[64];
  std::snprintf(text, sizeof(text), "0x%lx (%lu bytes)", address, bytes);
  return text;
}

// Both are mappings of one file, side by side in memory and in the file.
bool Continues(const host::OwnMapping& mapping, const host::OwnMapping& next) {
  return next.is_shared() && next.begin == mapping.end && next.device == mapping.device &&
         next.inode == mapping.inode &&
         next.offset == mapping.offset + (mapping.end - mapping.begin);
}

}  // namespace

Result<SharedMapping> FindSharedMapping(uintptr_t address, uint64_t bytes, const char* maps) {
  std::ifstream file(maps);
  std::optional<host::OwnMapping> run;  // those up to now that are one mapping of one file
  for (const host::OwnMapping& next : host::ReadMappings(file, 0, UINT64_MAX)) {
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
                kWayOut);
  }
  if (!run->is_shared() || run->inode == 0) {
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
  UniqueFd fd = host::DescriptorOf(*run);
  if (!fd.valid()) {
    return Fail(ErrorCode::kNotExportable,
                "no descriptor of the shared memory '" + run->name + "' is open in this process",
                "keep the descriptor of the mapping open, or " + std::string(kWayOut));
  }
  struct stat status = {};
  if (::fstat(fd.get(), &status) != 0)
    return Fail(SystemError(ErrorCode::kInternal, "fstat of shared memory", errno));
  const uint64_t mapped = run->end - run->begin;
  return SharedMapping{std::move(fd), run->begin,
                       std::min(mapped, static_cast<uint64_t>(status.st_size)), run->device,
                       run->inode};
}

}  // namespace gantry::nixl
