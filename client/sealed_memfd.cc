#include "client/sealed_memfd.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <limits>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

namespace gantry::client {
namespace {

constexpr uint64_t kPopulateSliceBytes = uint64_t{64} << 20;
constexpr uint64_t kMemfdBytesMax = uint64_t{1} << 46;
constexpr unsigned kPopulateThreadsMax = 8;
constexpr size_t kMemfdNameBytesMax = 249;  // memfd_create(2)

// The first number after `key` in a small file of the kernel.
std::optional<uint64_t> NumberIn(const char* path, std::string_view key) {
  UniqueFd fd(::open(path, O_RDONLY | O_CLOEXEC));
  std::array<char, 4096> buffer;
  const ssize_t bytes = fd.valid() ? ::read(fd.get(), buffer.data(), buffer.size()) : -1;
  if (bytes <= 0) return std::nullopt;
  std::string_view text(buffer.data(), static_cast<size_t>(bytes));
  const size_t found = text.find(key);
  if (found == std::string_view::npos) return std::nullopt;
  text.remove_prefix(found + key.size());
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  uint64_t value = 0;
  if (std::from_chars(text.data(), text.data() + text.size(), value).ec != std::errc()) {
    return std::nullopt;  // "max"
  }
  return value;
}

// Pages that cannot be had end in the out-of-memory killer, so what is clearly too much is refused.
Status CheckMemory(uint64_t bytes) {
  constexpr uint64_t kUnlimited = std::numeric_limits<uint64_t>::max();
  const uint64_t machine_kib =
      NumberIn("/proc/meminfo", "MemAvailable:").value_or(kUnlimited >> 10);
  const uint64_t cgroup = NumberIn("/sys/fs/cgroup/memory.max", "").value_or(kUnlimited);
  const uint64_t available = std::min(machine_kib << 10, cgroup);
  if (bytes <= available) return {};
  return Fail(ErrorCode::kResourceExhausted,
              std::to_string(bytes) + " bytes of memory were asked for, " +
                  std::to_string(available) + " are available",
              "ask for less, or raise the container's memory limit", "bytes");
}

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

int PopulateInParallel(int fd, std::byte* data, uint64_t bytes) {
  std::atomic<uint64_t> next{0};
  std::atomic<int> error_number{0};
  const auto work = [&] {
    for (uint64_t offset = next.fetch_add(kPopulateSliceBytes); offset < bytes && error_number == 0;
         offset = next.fetch_add(kPopulateSliceBytes)) {
      const uint64_t slice = std::min(kPopulateSliceBytes, bytes - offset);
      if (const int failed = PopulateSlice(fd, data, offset, slice); failed != 0) {
        error_number = failed;
      }
    }
  };
  const uint64_t slices = (bytes + kPopulateSliceBytes - 1) / kPopulateSliceBytes;
  const unsigned wanted = std::clamp(std::thread::hardware_concurrency(), 1U, kPopulateThreadsMax);
  std::vector<std::jthread> helpers;
  try {
    while (helpers.size() + 1 < std::min<uint64_t>(wanted, slices)) helpers.emplace_back(work);
  } catch (const std::exception&) {
    // Fewer threads than wanted: this one does the rest.
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
  return Fail(SystemError(ErrorCode::kResourceExhausted,
                          "allocating " + std::to_string(bytes) + " bytes of pages", error_number));
}

}  // namespace

uint64_t RoundUpToPages(uint64_t bytes) {
  const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
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
  RETURN_IF_ERROR(CheckMemory(bytes));
  const uint64_t rounded = RoundUpToPages(bytes);
  UniqueFd fd(::memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
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

Status CheckSealedMemfd(int fd, uint64_t bytes, bool* writable) {
  struct stat info = {};
  if (::fstat(fd, &info) != 0) {
    return Fail(SystemError(ErrorCode::kInvalidArgument, "the descriptor", errno).WithField("fd"));
  }
  const int mode = ::fcntl(fd, F_GETFL);
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (mode & O_PATH) != 0 || (mode & O_ACCMODE) == O_WRONLY) {
    return Fail(ErrorCode::kNotExportable, "the descriptor is not a memfd open for reading",
                "memfd_create with MFD_ALLOW_SEALING, or gantry_arena_create", "fd");
  }
  if ((seals & F_SEAL_SHRINK) == 0) {
    return Fail(ErrorCode::kFdNotSealed, "the memfd can still shrink under those who use it",
                "fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) before it is adopted", "fd");
  }
  const auto size = static_cast<uint64_t>(info.st_size);
  if (bytes == 0 || bytes > size) {
    return Fail(bytes == 0 ? ErrorCode::kInvalidArgument : ErrorCode::kFdTooShort,
                "the arena was said to have " + std::to_string(bytes) + " bytes, the memfd has " +
                    std::to_string(size),
                "ftruncate it before it is sealed", "bytes");
  }
  const bool sealed = (seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)) != 0;
  *writable = (mode & O_ACCMODE) == O_RDWR && !sealed;
  return {};
}

}  // namespace gantry::client
