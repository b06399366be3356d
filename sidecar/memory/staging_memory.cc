#include "sidecar/memory/staging_memory.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <cerrno>
#include <string>
#include <utility>

#include "lib/host/memory_room.h"

namespace gantry::memory {

Result<std::unique_ptr<StagingMemory>> StagingMemory::Create(MemoryMapper& mapper, uint64_t bytes) {
  const std::string what =
      "taking " + std::to_string(bytes) + " bytes of memory between GPUs and the network";
  const std::string hint =
      "give the sidecar's container more memory, or make --staging-bytes smaller";
  if (auto room = host::CheckMemoryRoom(bytes); !room) {
    Error error = std::move(room.error()).WithContext(what).WithField("");
    error.hint = hint;
    return Fail(std::move(error));
  }
  AllocationSource source;
  source.size = bytes;
  source.writable = true;
  source.pinned = true;
  auto fd =
      std::make_shared<UniqueFd>(::memfd_create("gantry-staging", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd->valid()) return Fail(SystemError(ErrorCode::kResourceExhausted, "memfd_create", errno));
  if (::fallocate(fd->get(), 0, 0, static_cast<off_t>(bytes)) != 0 ||
      ::fcntl(fd->get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    Error error = SystemError(ErrorCode::kResourceExhausted, what, errno);
    error.hint = hint;
    return Fail(std::move(error));
  }
  source.fd = std::move(fd);
  RETURN_IF_ERROR(CheckHostFd(source.fd->get(), bytes, /*needs_write=*/true));
  ASSIGN_OR_RETURN(auto allocation, MappedAllocation::Create(mapper, std::move(source)));
  ASSIGN_OR_RETURN(const std::span<std::byte> here, allocation->in_process().Bytes());
  RETURN_IF_ERROR(allocation->in_process().Populate());
  return std::unique_ptr<StagingMemory>(new StagingMemory(std::move(allocation), here));
}

}  // namespace gantry::memory
