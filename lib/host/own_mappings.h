// The mappings of this process in a range of addresses, as the kernel shows them. Stateless;
// thread-safe.
#pragma once

#include <fcntl.h>

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "lib/base/result.h"
#include "lib/base/unique_fd.h"

namespace gantry::host {

uint64_t PageBytes();

struct OwnMapping {
  uint64_t begin = 0;
  uint64_t end = 0;
  std::string access;   // "rw-p"
  uint64_t offset = 0;  // of `begin` in the file
  uint64_t device = 0;
  uint64_t inode = 0;  // 0: no file
  std::string name;    // a path, "[heap]", or empty
  std::string flags;   // of VmFlags in smaps, each with a blank in front and behind: " rd wr lo "

  bool is_shared() const { return access.size() == 4 && access[3] == 's'; }
  bool has(const char* flag) const;
};

// Reads the text of a maps or smaps file. Returns the mappings that touch [begin, end), in order.
std::vector<OwnMapping> ReadMappings(std::istream& text, uint64_t begin, uint64_t end);

// Returns the mappings of this process, which cover every byte of [begin, end). kInvalidArgument
// where a part is not mapped. Without flags.
Result<std::vector<OwnMapping>> MappingsOf(uint64_t begin, uint64_t end);
// With flags. The kernel counts pages for it: 16 ms for each GiB that is present below `end`.
Result<std::vector<OwnMapping>> FlaggedMappingsOf(uint64_t begin, uint64_t end);

// Returns true when the descriptor is of the mapped file.
bool StandsFor(int fd, const OwnMapping& mapping);

// The memfd that takes the place of private pages which the client library adopts.
constexpr const char* kReplacedPagesFile = "gantry-private";
bool WasReplaced(const OwnMapping& mapping);

// Returns a duplicate of a descriptor of this process that stands for the mapped file; one that is
// open for `access` (O_RDWR, O_RDONLY) where there is one. Not valid: no such descriptor is open.
UniqueFd DescriptorOf(const OwnMapping& mapping, int access = O_RDWR);

}  // namespace gantry::host
