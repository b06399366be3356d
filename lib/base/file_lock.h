// File locks by which one of several processes owns a resource; the holder may remove the file.
// Stateless; thread-safe.
#pragma once

#include <string>

namespace gantry {

enum class FileLock {
  kTaken,   // until the descriptor is closed
  kHeld,    // by another process
  kGone,    // the file was removed or replaced meanwhile
  kFailed,  // see errno
};

// Tries to lock the open file `fd` (flock), which was opened at `path`. Never blocks.
FileLock TryLock(int fd, const std::string& path);

}  // namespace gantry
