#include "sidecar/worker/channel/shared_block.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace gantry::worker {

Result<SharedBlock> SharedBlock::Create(const char* name, size_t bytes) {
  UniqueFd fd(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return Fail(SystemError(ErrorCode::kResourceExhausted, "memfd_create", errno));
  if (::fallocate(fd.get(), 0, 0, static_cast<off_t>(bytes)) != 0 ||
      ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    const int why = errno;
    Error error = SystemError(ErrorCode::kResourceExhausted, "allocating shared memory", why);
    if (why == EFBIG) error.hint = "raise RLIMIT_FSIZE, which bounds memfds as well as files";
    return Fail(std::move(error));
  }
  return Attach(std::move(fd), bytes);
}

Result<SharedBlock> SharedBlock::Attach(UniqueFd fd, size_t bytes) {
  RETURN_IF_ERROR(memory::CheckHostFd(fd.get(), bytes, /*needs_write=*/true));
  ASSIGN_OR_RETURN(memory::HostMapping mapping,
                   memory::HostMapping::Create(fd.get(), bytes, /*writable=*/true));
  return SharedBlock(std::move(fd), std::move(mapping));
}

}  // namespace gantry::worker
