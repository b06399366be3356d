#include "sidecar/memory/host_memory.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include "lib/base/log.h"

namespace gantry::memory {
namespace {

// One madvise call holds the process's memory map for as long as it takes.
constexpr uint64_t kPopulateSliceBytes = uint64_t{256} << 20;
constexpr uint64_t kAdvicePageBytes = 4096;  // madvise begins on one, of huge pages too
constexpr uint64_t kBlockBytes = 512;        // the unit of st_blocks
constexpr uint64_t kMappingBytesMax = uint64_t{1} << 46;

struct FileFacts {
  uint64_t size = 0;
  uint64_t backed_bytes = 0;
  uint64_t page_bytes = 4096;
  bool is_hugetlb = false;
};

Result<FileFacts> FactsOf(int fd) {
  struct stat info = {};
  struct statfs filesystem = {};
  if (::fstat(fd, &info) != 0 || ::fstatfs(fd, &filesystem) != 0) {
    return Fail(SystemError(ErrorCode::kNotExportable, "fstat of the descriptor", errno));
  }
  const auto magic = static_cast<uint64_t>(filesystem.f_type);
  if (!S_ISREG(info.st_mode) || (magic != TMPFS_MAGIC && magic != HUGETLBFS_MAGIC)) {
    return Fail(ErrorCode::kNotExportable, "the descriptor is not shared memory",
                "pass a memfd (memfd_create) or a file of tmpfs, or use a Gantry arena");
  }
  FileFacts facts;
  facts.size = static_cast<uint64_t>(info.st_size);
  facts.backed_bytes = static_cast<uint64_t>(info.st_blocks) * kBlockBytes;
  facts.is_hugetlb = magic == HUGETLBFS_MAGIC;
  if (facts.is_hugetlb) facts.page_bytes = static_cast<uint64_t>(filesystem.f_bsize);
  return facts;
}

Status CheckOpenMode(int fd, bool needs_write) {
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0) return Fail(SystemError(ErrorCode::kNotExportable, "F_GETFL", errno));
  const int mode = flags & O_ACCMODE;
  if ((flags & O_PATH) != 0 || mode == O_WRONLY) {
    return Fail(ErrorCode::kNotExportable, "the descriptor cannot be read",
                "open it with O_RDWR (or O_RDONLY when nothing writes to it)");
  }
  if (needs_write && mode != O_RDWR) {
    return Fail(ErrorCode::kFdReadOnly, "the descriptor is open for reading only",
                "open it with O_RDWR, or register the buffer without write access");
  }
  return {};
}

Status CheckSeals(int fd, bool needs_write, bool is_hugetlb, Unsealed unsealed) {
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0) return Fail(SystemError(ErrorCode::kNotExportable, "F_GET_SEALS", errno));
  if ((seals & F_SEAL_SHRINK) == 0 && (is_hugetlb || unsealed == Unsealed::kRefused)) {
    return Fail(
        ErrorCode::kFdNotSealed,
        "the file can still shrink, and a copy past its end kills the process that copies",
        is_hugetlb
            ? "take a memfd made with MFD_HUGETLB and MFD_ALLOW_SEALING, and "
              "fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK): --unsealed-memory is not for huge pages"
            : "fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) on a memfd made with "
              "MFD_ALLOW_SEALING, or use a Gantry arena; for files of tmpfs (/dev/shm) start "
              "the sidecar with --unsealed-memory");
  }
  if (needs_write && (seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)) != 0) {
    return Fail(ErrorCode::kFdReadOnly, "the file is sealed against writing",
                "register the buffer without write access, or leave out F_SEAL_WRITE");
  }
  return {};
}

Status CheckLength(const FileFacts& facts, uint64_t said_size) {
  if (said_size == 0 || said_size > kMappingBytesMax) {
    return Fail(ErrorCode::kInvalidArgument,
                "a mapping of " + std::to_string(said_size) + " bytes is not possible");
  }
  if (facts.size < said_size) {
    return Fail(ErrorCode::kFdTooShort,
                "the file has " + std::to_string(facts.size) +
                    " bytes, the allocation was said to have " + std::to_string(said_size),
                "ftruncate it to the allocation's size before it is registered");
  }
  return {};
}

}  // namespace

Status CheckHostFd(int fd, uint64_t said_size, bool needs_write, Unsealed unsealed) {
  ASSIGN_OR_RETURN(const FileFacts facts, FactsOf(fd));
  RETURN_IF_ERROR(CheckOpenMode(fd, needs_write));
  RETURN_IF_ERROR(CheckSeals(fd, needs_write, facts.is_hugetlb, unsealed));
  // Read after the seals: an owner may shrink the file and then seal it.
  ASSIGN_OR_RETURN(const FileFacts sealed, FactsOf(fd));
  return CheckLength(sealed, said_size);
}

bool CannotShrink(int fd) {
  const int seals = ::fcntl(fd, F_GET_SEALS);
  return seals >= 0 && (seals & F_SEAL_SHRINK) != 0;
}

Status CheckNotTruncated(int fd, uint64_t bytes) {
  ASSIGN_OR_RETURN(const FileFacts facts, FactsOf(fd));
  if (facts.size >= bytes) return {};
  return Fail(ErrorCode::kFdTooShort,
              "a file of unsealed memory has " + std::to_string(facts.size) + " bytes of " +
                  std::to_string(bytes) + " left",
              "its owner truncated the file of a buffer: leave it as long as it was registered");
}

Result<bool> IsPrefaulted(int fd, uint64_t size) {
  ASSIGN_OR_RETURN(const FileFacts facts, FactsOf(fd));
  return facts.backed_bytes >= size;
}

Status PopulatePages(std::byte* data, uint64_t bytes, bool writable) {
  const uint64_t before = reinterpret_cast<uintptr_t>(data) % kAdvicePageBytes;
  data -= before;
  bytes += before;
  const int advice = writable ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
  for (uint64_t offset = 0; offset < bytes; offset += kPopulateSliceBytes) {
    const uint64_t slice = std::min(kPopulateSliceBytes, bytes - offset);
    int outcome = 0;
    do {
      outcome = ::madvise(data + offset, slice, advice);
    } while (outcome != 0 && errno == EINTR);
    if (outcome == 0) continue;
    if (errno == EINVAL) return {};  // the first access pays
    return Fail(SystemError(ErrorCode::kDeviceError, "populating the page tables", errno));
  }
  return {};
}

Result<HostMapping> HostMapping::Create(int fd, uint64_t size, bool writable, Unsealed unsealed) {
  ASSIGN_OR_RETURN(HostMapping mapping, CreateEmpty(fd, size, writable, unsealed));
  ASSIGN_OR_RETURN(const bool prefaulted, IsPrefaulted(fd, size));
  const Status filled = prefaulted ? mapping.Populate() : Status();
  if (!filled && !mapping.may_shrink()) return Fail(filled.error());
  return mapping;
}

Result<HostMapping> HostMapping::CreateEmpty(int fd, uint64_t size, bool writable,
                                             Unsealed unsealed) {
  ASSIGN_OR_RETURN(const FileFacts facts, FactsOf(fd));
  const bool may_shrink = unsealed == Unsealed::kTaken;
  // A worker that starts while the file is short maps it, too: its owner may make it longer again.
  RETURN_IF_ERROR(CheckLength(may_shrink ? FileFacts{.size = size} : facts, size));
  const uint64_t mapped_bytes = (size + facts.page_bytes - 1) / facts.page_bytes * facts.page_bytes;
  const int protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
  void* address = ::mmap(nullptr, mapped_bytes, protection, MAP_SHARED, fd, 0);
  if (address == MAP_FAILED) {
    const bool refused = errno == EACCES || errno == EPERM;
    return Fail(SystemError(refused ? ErrorCode::kFdReadOnly : ErrorCode::kDeviceError,
                            "mmap of " + std::to_string(size) + " bytes", errno));
  }
  return HostMapping(static_cast<std::byte*>(address), size, mapped_bytes, writable, may_shrink);
}

Status HostMapping::Populate() const { return PopulatePages(data_, mapped_bytes_, writable_); }

HostMapping::HostMapping(std::byte* data, uint64_t size, uint64_t mapped_bytes, bool writable,
                         bool may_shrink)
    : data_(data),
      size_(size),
      mapped_bytes_(mapped_bytes),
      writable_(writable),
      may_shrink_(may_shrink) {}

HostMapping::HostMapping(HostMapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(other.size_),
      mapped_bytes_(other.mapped_bytes_),
      writable_(other.writable_),
      may_shrink_(other.may_shrink_) {}

HostMapping& HostMapping::operator=(HostMapping&& other) noexcept {
  if (this == &other) return *this;
  Release();
  data_ = std::exchange(other.data_, nullptr);
  size_ = other.size_;
  mapped_bytes_ = other.mapped_bytes_;
  writable_ = other.writable_;
  may_shrink_ = other.may_shrink_;
  return *this;
}

HostMapping::~HostMapping() { Release(); }

void HostMapping::Release() {
  if (data_ == nullptr) return;
  if (::munmap(data_, mapped_bytes_) != 0) {
    log::Error("munmap failed", {{"bytes", mapped_bytes_}, {"errno", errno}});
  }
  data_ = nullptr;
}

}  // namespace gantry::memory
