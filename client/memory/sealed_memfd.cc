#include "client/memory/sealed_memfd.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <exception>
#include <thread>
#include <vector>

#include "lib/base/thread.h"
#include "lib/host/memory_room.h"

namespace gantry::client {
namespace {

constexpr uint64_t kPopulateSliceBytes = uint64_t{16} << 20;
constexpr uint64_t kMemfdBytesMax = uint64_t{1} << 46;
constexpr uint64_t kBlockBytes = 512;  // the unit of st_blocks
constexpr unsigned kPopulateThreadsMax = 8;
constexpr size_t kMemfdNameBytesMax = 249;  // memfd_create(2)

// One slice of pages. Kernels before 5.14 do not know the advice; there fallocate does it.
int PopulateSlice(int fd, std::byte* data, uint64_t offset, uint64_t bytes) {
  int outcome = 0;
  do {
    outcome = ::madvise(data + offset, bytes, MADV_POPULATE_WRITE);
    if (outcome != 0 && errno == EINVAL) {
      outcome = ::fallocate(fd, 0, static_cast<off_t>(offset), static_cast<off_t>(bytes));
    }
  } while (outcome != 0 && errno == EINTR);
  return outcome == 0 ? 0 : errno;
}

uint64_t BytesPresent(int fd) {
  struct stat info = {};
  return ::fstat(fd, &info) == 0 ? static_cast<uint64_t>(info.st_blocks) * kBlockBytes : 0;
}

// Whether the rest of `bytes` has room. Helper threads must not throw; without memory to look
// there is no room either.
bool HasRoomForRest(int fd, uint64_t bytes) noexcept {
  try {
    return host::CheckMemoryRoom(bytes - std::min(bytes, BytesPresent(fd))).has_value();
  } catch (const std::exception&) {
    return false;
  }
}

// Before each slice it looks whether there is room for all that is missing. Others may take memory
// meanwhile: ranks of one pod that make their arenas at the same time. Returns an errno.
int PopulateInParallel(int fd, std::byte* data, uint64_t bytes) {
  std::atomic<uint64_t> next{0};
  std::atomic<int> error_number{0};
  const auto work = [&] {
    for (uint64_t offset = next.fetch_add(kPopulateSliceBytes); offset < bytes && error_number == 0;
         offset = next.fetch_add(kPopulateSliceBytes)) {
      const uint64_t slice = std::min(kPopulateSliceBytes, bytes - offset);
      const bool has_room = offset == 0 || HasRoomForRest(fd, bytes);
      const int failed = has_room ? PopulateSlice(fd, data, offset, slice) : ENOMEM;
      if (failed != 0) error_number = failed;
    }
  };
  const uint64_t slices = (bytes + kPopulateSliceBytes - 1) / kPopulateSliceBytes;
  const unsigned wanted = std::clamp(std::thread::hardware_concurrency(), 1U, kPopulateThreadsMax);
  std::vector<std::jthread> helpers;
  while (helpers.size() + 1 < std::min<uint64_t>(wanted, slices)) {
    auto helper = StartThread("gantry-populate", work);
    if (!helper) break;  // this one does the rest
    helpers.push_back(*std::move(helper));
  }
  work();
  helpers.clear();
  return error_number;
}

Status Populate(int fd, uint64_t bytes) {
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) {
    return Fail(SystemError(ErrorCode::kResourceExhausted, "mmap of a new memfd", errno));
  }
  ::madvise(data, bytes, MADV_HUGEPAGE);  // where the system allows it for shared memory
  const int error_number = PopulateInParallel(fd, static_cast<std::byte*>(data), bytes);
  ::munmap(data, bytes);
  if (error_number == 0) return {};
  Error error = SystemError(ErrorCode::kResourceExhausted,
                            "taking " + std::to_string(bytes) + " bytes of memory", error_number);
  error.hint = "others took memory meanwhile: ask for less, or raise the container's memory limit";
  return Fail(std::move(error).WithField("bytes"));
}

Status CheckUnsealed(int fd, bool takes_unsealed) {
  struct statfs filesystem = {};
  if (::fstatfs(fd, &filesystem) == 0 &&
      static_cast<uint64_t>(filesystem.f_type) != uint64_t{TMPFS_MAGIC}) {
    return Fail(ErrorCode::kFdNotSealed, "the file with huge pages can still shrink",
                "memfd_create with MFD_HUGETLB and MFD_ALLOW_SEALING, and then "
                "fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), before it is adopted",
                "fd");
  }
  if (takes_unsealed) return {};
  return Fail(ErrorCode::kFdNotSealed, "the file can still shrink under those who use it",
              "fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) before a memfd is adopted; for files of tmpfs "
              "(/dev/shm) start the sidecar with --unsealed-memory",
              "fd");
}

}  // namespace

uint64_t RoundUpToPages(uint64_t bytes) {
  const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

UniqueFd NewMemfd(const char* name, unsigned flags) {
  UniqueFd fd(::memfd_create(name, flags));
  if (!fd.valid() || fd.get() > STDERR_FILENO) return fd;
  return UniqueFd(::fcntl(fd.get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
}

Result<UniqueFd> CreateSealedMemfd(const std::string& name, uint64_t bytes) {
  if (bytes == 0 || bytes > kMemfdBytesMax) {
    return Fail(ErrorCode::kInvalidArgument,
                "an arena has 1 byte to 64 TiB, and not " + std::to_string(bytes) + " bytes", {},
                "bytes");
  }
  if (name.size() > kMemfdNameBytesMax) {
    return Fail(ErrorCode::kInvalidArgument,
                "the name of an arena has " + std::to_string(name.size()) + " bytes, and " +
                    std::to_string(kMemfdNameBytesMax) + " at most",
                "choose a shorter name", "name");
  }
  RETURN_IF_ERROR(host::CheckMemoryRoom(bytes));
  const uint64_t rounded = RoundUpToPages(bytes);
  UniqueFd fd = NewMemfd(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (!fd.valid()) {
    return Fail(
        SystemError(ErrorCode::kResourceExhausted, "memfd_create", errno).WithField("name"));
  }
  if (::ftruncate(fd.get(), static_cast<off_t>(rounded)) != 0) {
    return Fail(SystemError(ErrorCode::kResourceExhausted, "sizing a memfd", errno));
  }
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
    return Fail(SystemError(ErrorCode::kInternal, "sealing a memfd", errno));
  }
  RETURN_IF_ERROR(Populate(fd.get(), rounded));
  return fd;
}

bool HasEveryPage(int fd, uint64_t bytes) { return BytesPresent(fd) >= bytes; }

Status CheckMemoryFile(int fd, uint64_t bytes, bool takes_unsealed, bool* writable) {
  struct stat info = {};
  if (::fstat(fd, &info) != 0) {
    return Fail(SystemError(ErrorCode::kInvalidArgument, "the descriptor", errno).WithField("fd"));
  }
  const int mode = ::fcntl(fd, F_GETFL);
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (mode & O_PATH) != 0 || (mode & O_ACCMODE) == O_WRONLY) {
    return Fail(ErrorCode::kNotExportable,
                "the descriptor is not a memfd or a file of tmpfs, open for reading",
                "memfd_create with MFD_ALLOW_SEALING, or gantry_arena_create", "fd");
  }
  if ((seals & F_SEAL_SHRINK) == 0) RETURN_IF_ERROR(CheckUnsealed(fd, takes_unsealed));
  const auto size = static_cast<uint64_t>(info.st_size);
  if (bytes == 0 || bytes > size) {
    return Fail(bytes == 0 ? ErrorCode::kInvalidArgument : ErrorCode::kFdTooShort,
                "the arena was said to have " + std::to_string(bytes) + " bytes, its file has " +
                    std::to_string(size),
                "ftruncate it before it is adopted", "bytes");
  }
  const bool sealed = (seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)) != 0;
  *writable = (mode & O_ACCMODE) == O_RDWR && !sealed;
  return {};
}

}  // namespace gantry::client
