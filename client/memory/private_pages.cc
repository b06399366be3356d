#include "client/memory/private_pages.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "client/memory/range_text.h"
#include "client/memory/sealed_memfd.h"
#include "lib/gpu/loaded_gpu_pointers.h"
#include "lib/gpu/memory_origin.h"
#include "lib/host/memory_room.h"

namespace gantry::client {
namespace {

constexpr char kFileName[] = "gantry-private";
constexpr std::string_view kShownName = "/memfd:gantry-private";
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

uint64_t PageBytes() { return static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)); }

bool WasReplaced(const OwnMapping& mapping) {
  return mapping.is_shared() && mapping.name.starts_with(kShownName);
}

tl::unexpected<Error> Refused(const OwnMapping& mapping, const std::string& what,
                              const char* way_out) {
  const std::string name = mapping.name.empty() ? "" : " ('" + mapping.name + "')";
  return Fail(ErrorCode::kNotExportable,
              "the memory at " + RangeText(mapping.begin, mapping.end - mapping.begin) + name +
                  " " + what + ", and is not adopted",
              way_out, "address");
}

Status CheckKind(const OwnMapping& mapping) {
  for (const RefusedKind& kind : kRefusedKinds) {
    if (mapping.has(kind.flag)) return Refused(mapping, kind.what, kind.way_out);
  }
  if (WasReplaced(mapping)) return {};
  if (mapping.is_shared()) {
    return Refused(mapping, "is shared already",
                   "pass the descriptor of a sealed memfd to gantry_arena_adopt, or allocate an "
                   "arena (gantry_arena_create, Client.arena)");
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

// Reads memory that may not be there. The system call itself is made: sanitizers would take the
// library's function for an access in front of a block.
bool ReadIfMapped(uint64_t address, void* to, size_t bytes) {
  const UniqueFd file = NewMemfd("gantry-bytes", MFD_CLOEXEC);
  const auto all = static_cast<ssize_t>(bytes);
  return file.valid() && ::syscall(SYS_pwrite64, file.get(), address, bytes, 0) == all &&
         ::pread(file.get(), to, bytes, 0) == all;
}

// Whether malloc of glibc has the address in a heap of a thread: 64 MiB from a multiple of that on,
// with a header.
bool IsInThreadHeap(uint64_t address) {
  struct Header {
    uint64_t arena;
    uint64_t previous;  // heap of that arena
    uint64_t size;
    uint64_t accessible;
  } header = {};
  constexpr uint64_t kHeapBytes = uint64_t{64} << 20;
  const uint64_t offset = address % kHeapBytes;
  if (!ReadIfMapped(address - offset, &header, sizeof(header))) return false;
  return header.arena != 0 && header.arena % 16 == 0 && header.previous % kHeapBytes == 0 &&
         header.size % PageBytes() == 0 && header.size <= header.accessible &&
         header.accessible <= kHeapBytes && offset < header.accessible;
}

// The driver of a GPU keeps the addresses of pages that it has pinned.
Status CheckNotPinned(const ByteRange& pages) {
  const auto driver = gpu::LoadedGpuPointers();
  if (!driver) return {};
  for (uint64_t offset = 0; offset < pages.length;) {
    ASSIGN_OR_RETURN(const gpu::PointerInfo info, (*driver)->Resolve(pages.offset + offset));
    if (info.origin != gpu::MemoryOrigin::kUnknown) {
      return Fail(ErrorCode::kNotExportable,
                  "the memory at " + RangeText(pages.offset + offset, pages.length - offset) +
                      " is " + std::string(gpu::DescriptionOf(info.origin)) +
                      ", and is not adopted",
                  std::string(gpu::kUnpin) +
                      ", or put the data into an arena, which gantry_arena_pin (Arena.pin) pins",
                  "address");
    }
    const uint64_t last = pages.length - 1;
    offset = offset == last ? pages.length : std::min(offset + kSliceBytes, last);
  }
  return {};
}

// nullopt: no page is of a memfd that this process has a descriptor of.
Result<std::optional<SharedPages>> FindShared(const ByteRange& pages,
                                              const std::vector<OwnMapping>& mappings) {
  std::optional<SharedPages> found;
  bool all = true;
  const OwnMapping& first = mappings.front();
  for (const OwnMapping& each : mappings) {
    UniqueFd fd = WasReplaced(each) ? DescriptorOf(each) : UniqueFd();
    const bool continues = each.inode == first.inode && each.device == first.device &&
                           each.offset - first.offset == each.begin - first.begin;
    all = all && fd.valid() && continues;
    if (!fd.valid() || found) continue;
    const uint64_t address = each.begin - each.offset;
    found = SharedPages{std::move(fd), address, pages.offset + pages.length - address};
  }
  if (!found || all) return found;
  return Fail(ErrorCode::kConflict,
              "a part of " + RangeText(pages.offset, pages.length) + " is adopted already",
              "adopt a block whole, before parts of it", "address");
}

Result<UniqueFd> NewFile(uint64_t bytes) {
  rlimit limit = {};
  const bool limited = ::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  if (limited && limit.rlim_cur < bytes) {  // the kernel would send SIGXFSZ
    return Fail(ErrorCode::kResourceExhausted,
                std::to_string(bytes) + " bytes are more than a file of this process may have",
                "raise RLIMIT_FSIZE (ulimit -f)", "bytes");
  }
  UniqueFd fd = NewMemfd(kFileName, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (!fd.valid()) return Fail(SystemError(ErrorCode::kResourceExhausted, "memfd_create", errno));
  const uint64_t wanted = bytes + kGrowthBytes;
  const uint64_t size = limited ? std::min<uint64_t>(wanted, limit.rlim_cur) : wanted;
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
  // The kernel may have unmapped the old pages before it failed.
  const bool has_gone = ::msync(place, bytes, MS_ASYNC) != 0 && errno == ENOMEM;
  if (has_gone && ::mmap(place, bytes, kProtection, MAP_SHARED | MAP_FIXED, fd, at) == place) {
    return {};
  }
  Error error =
      SystemError(ErrorCode::kResourceExhausted, "moving a mapping into place", error_number);
  error.hint = "where a process has too many mappings, raise vm.max_map_count";
  return Fail(std::move(error));
}

// Bytes of pages that were never touched, or are swapped out: the memfd needs memory for them, too.
uint64_t AbsentBytes(const ByteRange& pages) {
  std::vector<unsigned char> present(kSliceBytes / PageBytes());
  uint64_t absent = 0;
  for (uint64_t offset = 0; offset < pages.length; offset += kSliceBytes) {
    const uint64_t bytes = std::min(kSliceBytes, pages.length - offset);
    void* const at = reinterpret_cast<void*>(pages.offset + offset);
    if (::mincore(at, bytes, present.data()) != 0) continue;
    const auto end = present.begin() + static_cast<ptrdiff_t>(bytes / PageBytes());
    absent += PageBytes() *
              static_cast<uint64_t>(std::count_if(
                  present.begin(), end, [](unsigned char page) { return (page & 1) == 0; }));
  }
  return absent;
}

Status ReplaceSlice(int fd, const ByteRange& pages, uint64_t offset) {
  const uint64_t bytes = std::min(kSliceBytes, pages.length - offset);
  RETURN_IF_ERROR(host::CheckMemoryRoom(bytes));
  RETURN_IF_ERROR(CopyIntoFile(fd, offset, pages.offset + offset, bytes));
  return MapInPlace(fd, offset, pages.offset + offset, bytes);
}

// Whether malloc of glibc has mapped the block by itself. Its header in front of the block then
// tells where the mapping begins and ends: no other block is in it.
bool HasMappingOfItsOwn(uint64_t address, uint64_t end) {
  struct Header {
    uint64_t before;  // bytes of the mapping in front of this header
    uint64_t size;    // from this header to the mapping's end, and three bits
  } header = {};
  constexpr uint64_t kBits = 7;
  constexpr uint64_t kIsMapped = 2;
  const uint64_t at = address - sizeof(header);
  if (address < sizeof(header) || !ReadIfMapped(at, &header, sizeof(header))) return false;
  uint64_t mapping_end = 0;
  return (header.size & kBits) == kIsMapped && header.before <= at &&
         EndOf(at, header.size & ~kBits, &mapping_end) && mapping_end >= end &&
         (at - header.before) % PageBytes() == 0 && mapping_end % PageBytes() == 0;
}

}  // namespace

Result<ByteRange> PagesOfBlock(uint64_t address, uint64_t bytes) {
  uint64_t end = 0;
  uint64_t padded = 0;
  if (bytes == 0 || !EndOf(address, bytes, &end) || !EndOf(end, PageBytes() - 1, &padded)) {
    return Fail(
        ErrorCode::kInvalidArgument,
        "a block has at least one byte and does not wrap around: " + RangeText(address, bytes), {},
        "bytes");
  }
  const uint64_t first = address - address % PageBytes();
  const uint64_t last = padded - padded % PageBytes();
  const bool whole = first == address && last == end;
  if (whole || HasMappingOfItsOwn(address, end)) return ByteRange{first, last - first};
  return Fail(ErrorCode::kNotExportable,
              RangeText(address, bytes) +
                  " does not fill its first and last page, where other memory of the process may "
                  "be: it is not adopted",
              "pass a whole block that malloc has mapped by itself (of 32 MiB always, of 128 KiB "
              "with GLIBC_TUNABLES=glibc.malloc.mmap_threshold=131072), or whole pages, as mmap "
              "gives; or use an arena (gantry_arena_create, Client.arena)",
              "address");
}

Result<SharedPages> SharePages(const ByteRange& pages) {
  ASSIGN_OR_RETURN(const auto mappings, MappingsOf(pages.offset, pages.offset + pages.length));
  ASSIGN_OR_RETURN(auto shared, FindShared(pages, mappings));
  if (shared) return *std::move(shared);
  for (const OwnMapping& mapping : mappings) RETURN_IF_ERROR(CheckKind(mapping));
  if (IsInThreadHeap(pages.offset)) return Refused(mappings.front(), kInHeap, kUseArena);
  RETURN_IF_ERROR(CheckNotPinned(pages));
  RETURN_IF_ERROR(host::CheckMemoryRoom(AbsentBytes(pages) + std::min(kSliceBytes, pages.length)));
  ASSIGN_OR_RETURN(UniqueFd fd, NewFile(pages.length));
  for (uint64_t offset = 0; offset < pages.length; offset += kSliceBytes) {
    RETURN_IF_ERROR(ReplaceSlice(fd.get(), pages, offset));
  }
  return SharedPages{std::move(fd), pages.offset, pages.length};
}

bool ShowsFile(int fd, uint64_t address, uint64_t bytes) {
  const auto mappings = MappingsOf(address, address + bytes);
  return mappings && std::all_of(mappings->begin(), mappings->end(), [&](const OwnMapping& each) {
           return StandsFor(fd, each) && each.begin - each.offset == address;
         });
}

}  // namespace gantry::client
