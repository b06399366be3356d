// Copies to and from memory that the caller named and that may not be there, or not be writable: a
// copy that the processor made itself would end the process. One thread at a time.
#pragma once

#include <cstddef>

#include "lib/base/result.h"
#include "lib/base/unique_fd.h"

namespace gantry::client {

class HostBytes {
 public:
  static Result<HostBytes> Create();

  // kFdReadOnly when not all of it can be read, or written. A write may have changed a part then.
  Status Read(void* to, const void* from, size_t bytes) const;
  Status Write(void* to, const void* from, size_t bytes) const;

 private:
  explicit HostBytes(UniqueFd file) : file_(std::move(file)) {}

  UniqueFd file_;  // the bytes pass through it: the kernel answers with an error where they cannot
};

}  // namespace gantry::client
