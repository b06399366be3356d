// Host memory that a file descriptor stands for (memfd, shmem, hugetlbfs): the check that the
// sidecar makes when it is registered, and the mapping that a copy worker holds.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lib/base/result.h"

namespace gantry::memory {

// Whether `fd` can be registered as `said_size` bytes of host memory: a memfd (or a hugetlbfs one)
// that cannot shrink any more, long enough, and open for what is asked. Thread-safe.
Status CheckHostFd(int fd, uint64_t said_size, bool needs_write);

// True when every page of [0, size) exists. Pages that the owner did not touch are charged to
// whoever touches them first, so a mapping does not populate such a file. Thread-safe.
Result<bool> IsPrefaulted(int fd, uint64_t size);

// Fills the page tables of all pages that have some of these mapped bytes, so that nobody takes a
// page fault there. Pages that do not exist yet are made, and charged to this process. Kernels
// before 5.14 cannot: nothing happens.
// Thread-safe.
Status PopulatePages(std::byte* data, uint64_t bytes, bool writable);

// [0, size) of a descriptor, mapped shared and, when its pages exist, with its page tables filled.
// Immutable; thread-safe. The descriptor may be closed afterwards.
class HostMapping {
 public:
  static Result<HostMapping> Create(int fd, uint64_t size, bool writable);
  // Takes no longer for a large file than for a small one: the page tables are left empty.
  static Result<HostMapping> CreateEmpty(int fd, uint64_t size, bool writable);
  HostMapping(HostMapping&& other) noexcept;
  HostMapping& operator=(HostMapping&& other) noexcept;
  HostMapping(const HostMapping&) = delete;
  HostMapping& operator=(const HostMapping&) = delete;
  ~HostMapping();

  std::byte* data() const { return data_; }  // read-only pages when not writable()
  uint64_t size() const { return size_; }
  bool writable() const { return writable_; }
  // Fills the page tables. REQUIRES that the pages exist.
  Status Populate() const;

 private:
  HostMapping(std::byte* data, uint64_t size, uint64_t mapped_bytes, bool writable);
  void Release();

  std::byte* data_ = nullptr;
  uint64_t size_ = 0;
  uint64_t mapped_bytes_ = 0;  // size_ rounded up to the page size of the file
  bool writable_ = false;
};

}  // namespace gantry::memory
