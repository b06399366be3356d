#include "sidecar/memory/gpu_handle_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace gantry::memory {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL;

}  // namespace

Result<UniqueFd> MakeHandleFile(std::string_view handle) {
  UniqueFd fd(::memfd_create("gantry-gpu-handle", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid() ||
      ::write(fd.get(), handle.data(), handle.size()) != static_cast<ssize_t>(handle.size()) ||
      ::fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) {
    return Fail(SystemError(ErrorCode::kResourceExhausted, "a file for a GPU handle", errno));
  }
  return fd;
}

Result<gpu::IpcHandle> ReadHandleFile(int fd) {
  gpu::IpcHandle handle;
  struct stat info = {};
  const bool is_one = ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode) &&
                      info.st_size == static_cast<off_t>(handle.bytes.size()) &&
                      (::fcntl(fd, F_GET_SEALS) & kSeals) == kSeals;
  if (is_one && ::pread(fd, handle.bytes.data(), handle.bytes.size(), 0) == info.st_size) {
    return handle;
  }
  return Fail(ErrorCode::kNotExportable, "the descriptor holds no handle of a GPU allocation",
              "name the handle as ipc_handle; a piece of virtual memory is no handle");
}

}  // namespace gantry::memory
