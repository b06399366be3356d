// Memory files that a sidecar can map: those sealed against shrinking, and where it takes them also
// other files of tmpfs. Stateless; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "lib/base/result.h"
#include "lib/base/unique_fd.h"

namespace gantry::client {

// As memfd_create(2), and never descriptor 0, 1 or 2: where the application has closed those, what
// somebody prints would end up in the memory. Not valid: errno says why.
UniqueFd NewMemfd(const char* name, unsigned flags);

// A memfd of `bytes` rounded up to whole pages, sealed against resizing, its pages allocated by a
// few threads that end before this returns. kResourceExhausted rather than the out-of-memory killer
// when the machine or a control group above cannot hold it.
Result<UniqueFd> CreateSealedMemfd(const std::string& name, uint64_t bytes);

// Whether [0, bytes) of a caller's descriptor can be mapped and handed over: nothing may take the
// bytes away again, unless the sidecar takes files of tmpfs that can shrink (`takes_unsealed`). The
// sidecar checks the same once more. *writable: it is open for writing.
Status CheckMemoryFile(int fd, uint64_t bytes, bool takes_unsealed, bool* writable);

// Whether none of [0, bytes) has to be allocated when it is touched.
bool HasEveryPage(int fd, uint64_t bytes);

uint64_t RoundUpToPages(uint64_t bytes);

}  // namespace gantry::client
