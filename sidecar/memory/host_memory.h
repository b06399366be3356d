// Host memory behind a file descriptor (memfd, hugetlbfs): the check at registration, and the
// mapping of a copy worker.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lib/base/result.h"

namespace gantry::memory {

// Whether files that can shrink are taken. Files of hugetlbfs that can shrink never are.
enum class Unsealed { kRefused, kTaken };

// Checks that `fd` can be registered as `said_size` bytes of host memory. It must be a file of
// tmpfs or hugetlbfs, long enough, and open for the access needed. kFdNotSealed: the file can
// shrink, and that is refused. Thread-safe.
Status CheckHostFd(int fd, uint64_t said_size, bool needs_write,
                   Unsealed unsealed = Unsealed::kRefused);

// Returns true where nobody can shrink the file. An access behind the end of one that was shrunk is
// a SIGBUS. A length that is read after this was true is final. Thread-safe.
bool CannotShrink(int fd);

// Fails with kFdTooShort where the file has fewer than `bytes` by now. Thread-safe.
Status CheckNotTruncated(int fd, uint64_t bytes);

// Returns true when the file has at least `size` bytes of existing pages. Mappings do not populate
// other files: the process that touches a missing page first is charged for it. Thread-safe.
Result<bool> IsPrefaulted(int fd, uint64_t size);

// Fills the page tables of all pages that contain these mapped bytes, which avoids page faults.
// Missing pages are created and charged to this process. Kernels before 5.14 lack the call: it then
// does nothing. Thread-safe.
Status PopulatePages(std::byte* data, uint64_t bytes, bool writable);

// [0, size) of a descriptor, mapped shared; page tables are filled if all pages exist. Immutable;
// thread-safe. The descriptor may be closed afterwards.
class HostMapping {
 public:
  // kTaken: the file may shrink, and may be short already. Its accesses have to be guarded.
  // kRefused: REQUIRES that the caller knows that the file cannot shrink.
  static Result<HostMapping> Create(int fd, uint64_t size, bool writable,
                                    Unsealed unsealed = Unsealed::kRefused);
  // Leaves the page tables empty, so that the time does not depend on the file's size.
  static Result<HostMapping> CreateEmpty(int fd, uint64_t size, bool writable,
                                         Unsealed unsealed = Unsealed::kRefused);
  HostMapping(HostMapping&& other) noexcept;
  HostMapping& operator=(HostMapping&& other) noexcept;
  HostMapping(const HostMapping&) = delete;
  HostMapping& operator=(const HostMapping&) = delete;
  ~HostMapping();

  std::byte* data() const { return data_; }  // pages are read-only unless writable()
  uint64_t size() const { return size_; }
  bool writable() const { return writable_; }
  // True for kTaken: an access may be a SIGBUS.
  bool may_shrink() const { return may_shrink_; }
  // Fills the page tables. REQUIRES that the pages exist.
  Status Populate() const;

 private:
  HostMapping(std::byte* data, uint64_t size, uint64_t mapped_bytes, bool writable,
              bool may_shrink);
  void Release();

  std::byte* data_ = nullptr;
  uint64_t size_ = 0;
  uint64_t mapped_bytes_ = 0;  // size_ rounded up to the file's page size
  bool writable_ = false;
  bool may_shrink_ = false;
};

}  // namespace gantry::memory
