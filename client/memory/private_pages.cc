#include "client/memory/private_pages.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "client/memory/malloc_block.h"
#include "client/memory/sealed_memfd.h"
#include "lib/base/range_text.h"
#include "lib/gpu/loaded_gpu_pointers.h"
#include "lib/gpu/memory_origin.h"
#include "lib/host/memory_room.h"
#include "lib/host/own_mappings.h"

namespace gantry::client {
namespace {

constexpr uint64_t kSliceBytes = uint64_t{64} << 20;
// Sparse bytes behind the pages, for realloc: it moves the mapping, and lets it grow.
constexpr uint64_t kGrowthBytes = uint64_t{1} << 45;
constexpr char kUseArena[] =
    "allocate an arena (gantry_arena_create, Client.arena) and put the data there";

// Its pages would stay shared when malloc gives them to other blocks.
constexpr char kInHeap[] = "is in a heap of malloc";

// A kind of mapping that is refused: its flag in VmFlags, what it is, and the way out.
struct RefusedKind {
  const char* flag;
  const char* what;
  const char* way_out;
};
constexpr RefusedKind kRefusedKinds[] = {
    {"ht", "has huge pages of hugetlb",
     "make them by memfd_create with MFD_HUGETLB and pass the descriptor to gantry_arena_adopt"},
    {"lo", "is locked (mlock)", "munlock it first; it can be locked again afterwards"},
    {"dc", "is kept from children (MADV_DONTFORK), as memory of a device is", kUseArena},
    {"wf", "is wiped in children (MADV_WIPEONFORK)", kUseArena},
    {"um", "is watched by a userfaultfd", kUseArena},
    {"uw", "is watched by a userfaultfd", kUseArena},
    {"io", "is of a device and has no pages", kUseArena},
    {"pf", "is of a device and has no pages", kUseArena},
    {"gd", "is a stack", kUseArena},
};

tl::unexpected<Error> Refused(const host::OwnMapping& mapping, const std::string& what,
                              const char* way_out) {
  const std::string name = mapping.name.empty() ? "" : " ('" + mapping.name + "')";
  return Fail(ErrorCode::kNotExportable,
              "the memory at " + RangeText(mapping.begin, mapping.end - mapping.begin) + name +
                  " " + what + ", and is not adopted",
              way_out, "address");
}

Status CheckKind(const host::OwnMapping& mapping) {
  for (const RefusedKind& kind : kRefusedKinds) {
    if (mapping.has(kind.flag)) return Refused(mapping, kind.what, kind.way_out);
  }
  if (host::WasReplaced(mapping)) return {};
  if (mapping.is_shared()) {
    return Refused(mapping, "is shared already, behind private memory",
                   "adopt each mapping by itself");
  }
  if (mapping.inode != 0) return Refused(mapping, "is of a file", kUseArena);
  if (mapping.access != "rw-p") {
    return Refused(mapping, "is " + mapping.access + ", neither readable and writable nor plain",
                   "make it readable and writable, and not executable");
  }
  const std::string_view name = mapping.name;
  if (name == "[heap]") return Refused(mapping, kInHeap, kUseArena);
  if (name.starts_with("[") && !name.starts_with("[anon:")) {
    return Refused(mapping, "is the kernel's or a stack", kUseArena);
  }
  return {};
}

// The driver of a GPU keeps the addresses of memory that it has pinned, and tells them byte by
// byte. A pin covers the first or the last byte of a page, unless it is a part of that page alone.
Status CheckNotPinned(const ByteRange& pages) {
  const auto driver = gpu::LoadedGpuPointers();
  if (!driver && driver.error().code == ErrorCode::kNotFound) return {};
  if (!driver) return Fail(driver.error());
  for (uint64_t offset = 0; offset < pages.length; offset += host::PageBytes()) {
    const uint64_t page = pages.offset + offset;
    for (const uint64_t at : {page, page + host::PageBytes() - 1}) {
      ASSIGN_OR_RETURN(const uint64_t id, (*driver)->BufferIdOf(gpu::DeviceAddress{at}));
      if (id == 0) continue;
      ASSIGN_OR_RETURN(const gpu::PointerInfo info, (*driver)->Resolve(at));
      return Fail(ErrorCode::kNotExportable,
                  "the memory at " + RangeText(page, pages.length - offset) + " is " +
                      std::string(gpu::DescriptionOf(info.origin)) + ", and is not adopted",
                  std::string(gpu::kUnpin) +
                      ", or put the data into an arena, which gantry_arena_pin (Arena.pin) pins",
                  "address");
    }
  }
  return {};
}

// One adoption at a time in this process, also of other copies of this library in it. A child of
// fork has a lock of its own, as its /proc/self is another inode.
class AdoptionLock {
 public:
  static Result<AdoptionLock> Take() {
    UniqueFd fd(::open("/proc/self", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    int result = -1;
    do {
      result = fd.valid() ? ::flock(fd.get(), LOCK_EX) : -1;
    } while (result != 0 && fd.valid() && errno == EINTR);
    if (result == 0) return AdoptionLock(std::move(fd));
    return Fail(SystemError(ErrorCode::kNotExportable, "locking /proc/self", errno));
  }
  // A child may have the descriptor, too.
  ~AdoptionLock() {
    if (fd_.valid()) ::flock(fd_.get(), LOCK_UN);
  }
  AdoptionLock(AdoptionLock&&) = default;
  AdoptionLock& operator=(AdoptionLock&&) = delete;

 private:
  explicit AdoptionLock(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

// nullopt: no page is of a memfd that this process has a descriptor of.
Result<std::optional<SharedPages>> FindShared(const ByteRange& pages,
                                              const std::vector<host::OwnMapping>& mappings) {
  std::optional<SharedPages> found;
  bool all = true;
  const host::OwnMapping& first = mappings.front();
  for (const host::OwnMapping& each : mappings) {
    UniqueFd fd = host::WasReplaced(each) ? host::DescriptorOf(each) : UniqueFd();
    const bool continues = each.inode == first.inode && each.device == first.device &&
                           each.offset - first.offset == each.begin - first.begin;
    all = all && fd.valid() && continues;
    if (!fd.valid() || found) continue;
    const uint64_t address = each.begin - each.offset;
    found = SharedPages{std::move(fd), address, pages.offset + pages.length - address};
  }
  if (!found) return found;
  if (all && ShowsFile(found->fd.get(), found->address, found->bytes)) return found;
  if (all) {
    return Fail(ErrorCode::kConflict,
                RangeText(pages.offset, pages.length) +
                    " was adopted with memory in front of it, which was unmapped since",
                "unregister its buffers, and use an arena (gantry_arena_create, Client.arena)",
                "address");
  }
  return Fail(ErrorCode::kConflict,
              "a part of " + RangeText(pages.offset, pages.length) + " is adopted already",
              "adopt a block whole, before parts of it", "address");
}

Result<UniqueFd> NewFile(uint64_t bytes) {
  rlimit limit = {};
  const uint64_t size = bytes + kGrowthBytes;
  const bool limited = ::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  if (limited && limit.rlim_cur < size) {  // the kernel would send SIGXFSZ, and later SIGBUS
    return Fail(ErrorCode::kResourceExhausted,
                "a file of this process may have " + std::to_string(limit.rlim_cur) +
                    " bytes, and adopted memory needs one of " + std::to_string(size) +
                    ", without pages behind its bytes",
                "lift RLIMIT_FSIZE (ulimit -f unlimited), or use an arena (gantry_arena_create, "
                "Client.arena)",
                "bytes");
  }
  UniqueFd fd = NewMemfd(host::kReplacedPagesFile, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (!fd.valid()) return Fail(SystemError(ErrorCode::kResourceExhausted, "memfd_create", errno));
  if (::ftruncate(fd.get(), static_cast<off_t>(size)) != 0) {
    return Fail(SystemError(ErrorCode::kResourceExhausted, "sizing a memfd", errno));
  }
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
    return Fail(SystemError(ErrorCode::kInternal, "sealing a memfd", errno));
  }
  return fd;
}

// The kernel reads the memory: where it has gone, that is an error and no signal.
Status CopyIntoFile(int fd, uint64_t offset, uint64_t address, uint64_t bytes) {
  for (uint64_t done = 0; done < bytes;) {
    const ssize_t written = ::pwrite(fd, reinterpret_cast<const void*>(address + done),
                                     bytes - done, static_cast<off_t>(offset + done));
    if (written < 0 && errno == EINTR) continue;
    if (written > 0) {
      done += static_cast<uint64_t>(written);
      continue;
    }
    const bool gone = written < 0 && errno == EFAULT;
    Error error = SystemError(gone ? ErrorCode::kInvalidArgument : ErrorCode::kResourceExhausted,
                              "copying " + RangeText(address, bytes) + " into a memfd",
                              written < 0 ? errno : ENOSPC);
    return Fail(std::move(error).WithField("address"));
  }
  return {};
}

// Maps the slice of the file aside, and moves the mapping to the address in one step. A reader
// there finds the old page or the new one.
Status MapInPlace(int fd, uint64_t offset, uint64_t address, uint64_t bytes) {
  constexpr int kProtection = PROT_READ | PROT_WRITE;
  const auto at = static_cast<off_t>(offset);
  void* const aside = ::mmap(nullptr, bytes, kProtection, MAP_SHARED, fd, at);
  if (aside == MAP_FAILED) {
    return Fail(SystemError(ErrorCode::kResourceExhausted, "mapping a memfd", errno));
  }
  ::madvise(aside, bytes, MADV_POPULATE_WRITE);  // the pages are there; this saves page faults
  void* const place = reinterpret_cast<void*>(address);
  if (::mremap(aside, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, place) == place) return {};
  const int error_number = errno;
  ::munmap(aside, bytes);
  // The kernel may have unmapped the old pages before it failed. Memory that another thread has
  // mapped there since is not touched.
  const bool has_gone = ::msync(place, bytes, MS_ASYNC) != 0 && errno == ENOMEM;
  constexpr int kFlags = MAP_SHARED | MAP_FIXED_NOREPLACE;
  if (has_gone && ::mmap(place, bytes, kProtection, kFlags, fd, at) == place) return {};
  Error error =
      SystemError(ErrorCode::kResourceExhausted, "moving a mapping into place", error_number);
  error.hint = "where a process has too many mappings, raise vm.max_map_count";
  return Fail(std::move(error));
}

// Bytes that the memfd takes without freeing pages: those that were never touched or written (the
// zero page), that a child or parent shares since fork, or that are swapped out.
uint64_t AddedBytes(const ByteRange& pages) {
  constexpr uint64_t kFreedOnceMoved = (uint64_t{1} << 63) | (uint64_t{1} << 56);  // there, alone
  const UniqueFd pagemap(::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
  std::vector<uint64_t> entries(kSliceBytes / host::PageBytes());
  uint64_t added = 0;
  for (uint64_t offset = 0; offset < pages.length; offset += kSliceBytes) {
    const uint64_t count = std::min(kSliceBytes, pages.length - offset) / host::PageBytes();
    const uint64_t first = (pages.offset + offset) / host::PageBytes();
    const ssize_t got = ::pread(pagemap.get(), entries.data(), count * sizeof(uint64_t),
                                static_cast<off_t>(first * sizeof(uint64_t)));
    const uint64_t known = got > 0 ? static_cast<uint64_t>(got) / sizeof(uint64_t) : 0;
    const auto freed =
        std::count_if(entries.begin(), entries.begin() + static_cast<ptrdiff_t>(known),
                      [](uint64_t entry) { return (entry & kFreedOnceMoved) == kFreedOnceMoved; });
    added += host::PageBytes() * (count - static_cast<uint64_t>(freed));
  }
  return added;
}

Status ReplaceSlice(int fd, const ByteRange& pages, uint64_t offset) {
  const uint64_t bytes = std::min(kSliceBytes, pages.length - offset);
  RETURN_IF_ERROR(host::CheckMemoryRoom(bytes));
  RETURN_IF_ERROR(CopyIntoFile(fd, offset, pages.offset + offset, bytes));
  return MapInPlace(fd, offset, pages.offset + offset, bytes);
}

}  // namespace

Result<SharedPages> SharePages(const ByteRange& pages) {
  const uint64_t end = pages.offset + pages.length;
  // Pages that are shared wait for nobody, who may copy another block for a minute.
  ASSIGN_OR_RETURN(const auto before, host::MappingsOf(pages.offset, end));
  if (auto shared = FindShared(pages, before); shared && *shared) return **std::move(shared);
  ASSIGN_OR_RETURN(const AdoptionLock lock, AdoptionLock::Take());
  ASSIGN_OR_RETURN(const auto known, host::MappingsOf(pages.offset, end));
  ASSIGN_OR_RETURN(auto shared, FindShared(pages, known));
  if (shared) return *std::move(shared);
  ASSIGN_OR_RETURN(const auto mappings, host::FlaggedMappingsOf(pages.offset, end));
  for (const host::OwnMapping& mapping : mappings) RETURN_IF_ERROR(CheckKind(mapping));
  if (IsInThreadHeap(pages.offset)) return Refused(mappings.front(), kInHeap, kUseArena);
  RETURN_IF_ERROR(CheckNotPinned(pages));
  RETURN_IF_ERROR(host::CheckMemoryRoom(AddedBytes(pages) + std::min(kSliceBytes, pages.length)));
  ASSIGN_OR_RETURN(UniqueFd fd, NewFile(pages.length));
  for (uint64_t offset = 0; offset < pages.length; offset += kSliceBytes) {
    RETURN_IF_ERROR(ReplaceSlice(fd.get(), pages, offset));
  }
  if (ShowsFile(fd.get(), pages.offset, pages.length)) {
    return SharedPages{std::move(fd), pages.offset, pages.length};
  }
  return Fail(ErrorCode::kConflict,
              RangeText(pages.offset, pages.length) + " was mapped anew while it was adopted",
              "let no other thread use the memory until it is adopted", "address");
}

bool IsSharedMapping(uint64_t address) {
  const auto mappings = host::MappingsOf(address, address + 1);
  return mappings && !mappings->empty() && mappings->front().is_shared() &&
         mappings->front().inode != 0 && !WasReplaced(mappings->front());
}

bool ShowsFile(int fd, uint64_t address, uint64_t bytes) {
  const auto mappings = host::MappingsOf(address, address + bytes);
  return mappings && !mappings->empty() &&
         std::all_of(mappings->begin(), mappings->end(), [&](const host::OwnMapping& each) {
           return host::StandsFor(fd, each) && each.begin - each.offset == address;
         });
}

}  // namespace gantry::client
