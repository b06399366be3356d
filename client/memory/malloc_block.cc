#include "client/memory/malloc_block.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lib/base/range_text.h"
#include "lib/base/unique_fd.h"
#include "lib/host/own_mappings.h"

namespace gantry::client {
namespace {

constexpr const char* kAllocatorNames[] = {"malloc", "calloc", "realloc", "posix_memalign", "free"};

enum class Definer { kNone, kGlibc, kOther, kNotKnown };

// The object that the lookup finds. kNotKnown: the program itself has no definition, and stands for
// one by a stub (a program without position-independent code that takes the address).
Definer DefinerOf(const char* name, void* handle, const void* glibc) {
  void* const address = ::dlsym(handle, name);
  if (address == nullptr) return Definer::kNone;
  Dl_info info = {};
  void* symbol = nullptr;
  if (::dladdr1(address, &info, &symbol, RTLD_DL_SYMENT) == 0) return Definer::kOther;
  if (info.dli_fbase == glibc) return Definer::kGlibc;
  const auto* const entry = static_cast<const ElfW(Sym)*>(symbol);
  return entry != nullptr && entry->st_shndx == SHN_UNDEF ? Definer::kNotKnown : Definer::kOther;
}

std::vector<std::string> NamesOfLibraries() {
  std::vector<std::string> names;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* to) {
        if (info->dlpi_name != nullptr && info->dlpi_name[0] != '\0') {
          static_cast<std::vector<std::string>*>(to)->emplace_back(info->dlpi_name);
        }
        return 0;
      },
      &names);
  return names;
}

// Returns true when no library but glibc defines any of the names.
bool OnlyGlibcDefinesThem(const void* glibc) {
  const std::vector<std::string> names = NamesOfLibraries();
  return std::all_of(names.begin(), names.end(), [&](const std::string& library) {
    const std::unique_ptr<void, int (*)(void*)> handle(
        ::dlopen(library.c_str(), RTLD_LAZY | RTLD_NOLOAD), ::dlclose);
    const auto is_other = [&](const char* name) {
      return DefinerOf(name, handle.get(), glibc) == Definer::kOther;
    };
    return handle == nullptr ||
           std::none_of(std::begin(kAllocatorNames), std::end(kAllocatorNames), is_other);
  });
}

// Other allocators keep pages that are freed, and put no header of glibc in front of blocks.
bool MallocIsOfGlibc() {
  void* const own = ::dlsym(RTLD_DEFAULT, "gnu_get_libc_version");
  Dl_info info = {};
  if (own == nullptr || ::dladdr(own, &info) == 0) return false;
  bool known = true;
  for (const char* const name : kAllocatorNames) {
    const Definer definer = DefinerOf(name, RTLD_DEFAULT, info.dli_fbase);
    if (definer == Definer::kOther || definer == Definer::kNone) return false;
    known = known && definer == Definer::kGlibc;
  }
  return known || OnlyGlibcDefinesThem(info.dli_fbase);
}

// Reads memory that may not be there. The system call itself is made: sanitizers would take the
// library's function for an access in front of a block. A pipe has no limit of file sizes.
bool ReadIfMapped(std::span<const iovec> places, void* to, size_t bytes) {
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return false;
  const UniqueFd from(ends[0]);
  const UniqueFd into(ends[1]);
  const auto all = static_cast<ssize_t>(bytes);
  return ::syscall(SYS_writev, into.get(), places.data(), places.size()) == all &&
         ::read(from.get(), to, bytes) == all;
}

bool ReadIfMapped(uint64_t address, void* to, size_t bytes) {
  const iovec place = {reinterpret_cast<void*>(address), bytes};
  return ReadIfMapped({&place, 1}, to, bytes);
}

// In front of a block. This is the layout up to glibc 2.42 at least; blocks with another one are
// refused.
struct Header {
  uint64_t before;  // bytes of the mapping in front of this header
  uint64_t size;    // from this header to the mapping's end, and three bits
};

// Returns the mapping that the header at this address tells of, where it has [address, end).
std::optional<ByteRange> MappingBy(const Header& header, uint64_t at, uint64_t end) {
  constexpr uint64_t kBits = 7;
  constexpr uint64_t kIsMapped = 2;
  uint64_t mapping_end = 0;
  if ((header.size & kBits) != kIsMapped || header.before > at) return std::nullopt;
  if (!EndOf(at, header.size & ~kBits, &mapping_end) || mapping_end < end) return std::nullopt;
  const uint64_t begin = at - header.before;
  if (begin % host::PageBytes() != 0 || mapping_end % host::PageBytes() != 0) return std::nullopt;
  return ByteRange{begin, mapping_end - begin};
}

// Returns the mapping of the block that begins at the address, where it has one of its own. The
// mapping begins with a header, too, which tells the same.
std::optional<ByteRange> MappingOfBlock(uint64_t address, uint64_t end) {
  Header header = {};
  const uint64_t at = address - sizeof(header);
  if (address < sizeof(header) || !ReadIfMapped(at, &header, sizeof(header))) return std::nullopt;
  const auto mapping = MappingBy(header, at, end);
  if (!mapping || !ReadIfMapped(mapping->offset, &header, sizeof(header))) return std::nullopt;
  const auto whole = header.before == 0 ? MappingBy(header, mapping->offset, end) : std::nullopt;
  return whole && whole->length == mapping->length ? mapping : std::nullopt;
}

uint64_t PageAfter(uint64_t address) {
  return address - address % host::PageBytes() + host::PageBytes();
}

Result<ByteRange> WholePages(uint64_t address, uint64_t bytes) {
  uint64_t padded = 0;
  if (bytes == 0 || !EndOf(address, bytes, &padded) ||
      !EndOf(padded, host::PageBytes() - 1, &padded)) {
    return Fail(
        ErrorCode::kInvalidArgument,
        "a block has at least one byte and does not wrap around: " + RangeText(address, bytes), {},
        "bytes");
  }
  const uint64_t first = address - address % host::PageBytes();
  return ByteRange{first, padded - padded % host::PageBytes() - first};
}

// Returns the mappings of plain private memory, without a hole, up to the one that has the address.
// Memory that an earlier call has made shared counts as private.
std::vector<host::OwnMapping> PrivateMemoryUpTo(uint64_t address) {
  std::ifstream maps("/proc/self/maps");
  std::vector<host::OwnMapping> run;
  for (host::OwnMapping& each : host::ReadMappings(maps, 0, address + 1)) {
    const bool is_plain = each.access == "rw-p" && each.inode == 0;
    if (!run.empty() && run.back().end != each.begin) run.clear();
    if (is_plain || host::WasReplaced(each)) {
      run.push_back(std::move(each));
    } else {
      run.clear();
    }
  }
  if (run.empty() || run.back().end <= address) run.clear();
  return run;
}

constexpr uint64_t kPagesAtOnce = 8192;

// Returns the pages of [begin, end), kPagesAtOnce at most, that somebody has written, the last one
// first. To look at others would allocate them.
std::vector<uint64_t> WrittenPages(uint64_t begin, uint64_t end) {
  constexpr uint64_t kWritten = uint64_t{3} << 62;  // present, or swapped out
  const UniqueFd pagemap(::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
  // They count as written where the kernel does not tell.
  std::vector<uint64_t> entries((end - begin) / host::PageBytes(), kWritten);
  [[maybe_unused]] const ssize_t got =
      ::pread(pagemap.get(), entries.data(), entries.size() * sizeof(uint64_t),
              static_cast<off_t>(begin / host::PageBytes() * sizeof(uint64_t)));
  std::vector<uint64_t> pages;
  for (uint64_t i = entries.size(); i-- > 0;) {
    if ((entries[i] & kWritten) != 0) pages.push_back(begin + i * host::PageBytes());
  }
  return pages;
}

// Reads the headers at these pages, which become fewer where one of them cannot be read: those
// behind it are left out. Guard regions of madvise are such pages.
std::vector<Header> HeadersAt(std::span<const uint64_t> pages) {
  std::vector<iovec> places;
  places.reserve(pages.size());
  for (const uint64_t page : pages) {
    places.push_back({reinterpret_cast<void*>(page), sizeof(Header)});
  }
  std::vector<Header> headers(pages.size());
  if (ReadIfMapped(places, headers.data(), pages.size() * sizeof(Header))) return headers;
  size_t count = 0;
  while (count < pages.size() && ReadIfMapped(pages[count], &headers[count], sizeof(Header))) {
    ++count;
  }
  headers.resize(count);
  return headers;
}

// Adds what headers at these pages tell of mappings that have the address and end there or later.
// Returns false where a page cannot be read.
bool AddMappings(std::span<const uint64_t> pages, uint64_t end, std::vector<ByteRange>* found) {
  constexpr size_t kAtOnce = 256;  // their headers fill one page, which any pipe has
  while (!pages.empty()) {
    const auto some = pages.first(std::min(pages.size(), kAtOnce));
    const std::vector<Header> headers = HeadersAt(some);
    for (size_t i = 0; i < headers.size(); ++i) {
      if (headers[i].before != 0) continue;
      if (const auto mapping = MappingBy(headers[i], some[i], end)) found->push_back(*mapping);
    }
    if (headers.size() < some.size()) return false;
    pages = pages.subspan(some.size());
  }
  return true;
}

// Looks where pages begin for headers of blocks that have [address, end). One of them is the
// block's. Bytes that somebody has written may look the same. No block has a page that cannot be
// read, so that none begins in front of one.
std::vector<ByteRange> MappingsAround(uint64_t address, uint64_t end) {
  std::vector<ByteRange> found;
  const std::vector<host::OwnMapping> run = PrivateMemoryUpTo(address);
  for (auto each = run.rbegin(); each != run.rend(); ++each) {
    uint64_t begin = 0;
    for (uint64_t top = std::min(each->end, PageAfter(address)); top > each->begin; top = begin) {
      begin = std::max(each->begin, top - std::min(top, kPagesAtOnce * host::PageBytes()));
      std::vector<uint64_t> pages = WrittenPages(begin, top);
      // The kernel may show none in a file whose page was swapped out.
      const bool has_first = !pages.empty() && pages.back() == begin;
      if (begin == each->begin && !has_first) pages.push_back(begin);
      if (!AddMappings(pages, end, &found)) return found;
    }
  }
  return found;
}

// Returns the mapping of the block that an earlier call has made shared, where this process still
// has its descriptor. Later writes of peers there do not count.
std::optional<ByteRange> SharedBlockAround(uint64_t address, uint64_t end) {
  std::ifstream maps("/proc/self/maps");
  std::optional<host::OwnMapping> run;
  for (const host::OwnMapping& each : host::ReadMappings(maps, 0, UINT64_MAX)) {
    const bool continues = run && each.begin == run->end && each.inode == run->inode &&
                           each.device == run->device &&
                           each.offset - run->offset == each.begin - run->begin;
    if (continues) {
      run->end = each.end;
    } else if (run && run->end > address) {
      break;
    } else {
      run = host::WasReplaced(each) ? std::optional(each) : std::nullopt;
    }
  }
  const bool has_range = run && run->begin <= address && run->end >= end;
  if (!has_range || run->offset != 0 || !host::DescriptorOf(*run).valid()) return std::nullopt;
  return ByteRange{run->begin, run->end - run->begin};
}

Status CheckMallocIsOfGlibc(uint64_t address, uint64_t bytes) {
  if (MallocIsOfGlibc()) return {};
  return Fail(ErrorCode::kNotExportable,
              "malloc of this process is not glibc's, and keeps pages that are freed: " +
                  RangeText(address, bytes) + " is not adopted",
              "use an arena (gantry_arena_create, Client.arena), or memory of mmap "
              "(GANTRY_OWN_MAPPING)",
              "address");
}

tl::unexpected<Error> NoBlock(uint64_t address, uint64_t bytes) {
  return Fail(ErrorCode::kNotExportable,
              RangeText(address, bytes) +
                  " is no block that malloc has mapped by itself, so its pages may hold other "
                  "memory of the process: it is not adopted",
              "pass a whole block of malloc, of 128 KiB at least and with "
              "GLIBC_TUNABLES=glibc.malloc.mmap_threshold=131072, or memory of mmap "
              "(GANTRY_OWN_MAPPING, mmap.mmap); or use an arena (gantry_arena_create, "
              "Client.arena)",
              "address");
}

}  // namespace

Result<ByteRange> PagesOfBlock(uint64_t address, uint64_t bytes) {
  RETURN_IF_ERROR(WholePages(address, bytes));
  RETURN_IF_ERROR(CheckMallocIsOfGlibc(address, bytes));
  if (const auto mapping = MappingOfBlock(address, address + bytes)) return *mapping;
  return NoBlock(address, bytes);
}

Result<ByteRange> PagesAroundPart(uint64_t address, uint64_t bytes) {
  RETURN_IF_ERROR(WholePages(address, bytes));
  RETURN_IF_ERROR(CheckMallocIsOfGlibc(address, bytes));
  if (const auto shared = SharedBlockAround(address, address + bytes)) return *shared;
  auto found = MappingsAround(address, address + bytes);
  // No block has a hole: such bytes are data that looks like a header.
  std::erase_if(found, [](const ByteRange& each) {
    return !host::MappingsOf(each.offset, each.offset + each.length);
  });
  if (found.size() == 1) return found.front();
  return NoBlock(address, bytes);
}

Result<ByteRange> PagesOfMapping(uint64_t address, uint64_t bytes) {
  ASSIGN_OR_RETURN(const ByteRange pages, WholePages(address, bytes));
  if (pages.offset == address && pages.length == bytes) return pages;
  return Fail(ErrorCode::kNotExportable,
              RangeText(address, bytes) + " does not fill its first and last page",
              "pass whole pages, as mmap gives them", "address");
}

// Such a heap is 64 MiB from a multiple of that on, with a header.
bool IsInThreadHeap(uint64_t address) {
  struct Header {
    uint64_t arena;
    uint64_t previous;  // heap of that arena
    uint64_t size;
    uint64_t accessible;
  } header = {};
  constexpr uint64_t kHeapBytes = uint64_t{64} << 20;
  const uint64_t offset = address % kHeapBytes;
  const uint64_t begin = address - offset;
  // Memory of devices and of files is not read.
  const auto around = host::MappingsOf(begin, begin + host::PageBytes());
  if (!around || around->front().access != "rw-p" || around->front().inode != 0) return false;
  if (!ReadIfMapped(begin, &header, sizeof(header))) return false;
  return header.arena != 0 && header.arena % 16 == 0 && header.previous % kHeapBytes == 0 &&
         header.size % host::PageBytes() == 0 && header.size <= header.accessible &&
         header.accessible <= kHeapBytes && offset < header.accessible;
}

}  // namespace gantry::client
