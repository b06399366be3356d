// Locks on files by which one of several processes has something, and which whoever holds them may
// remove. Stateless; thread-safe.
#pragma once

#include <string>

namespace gantry {

enum class FileLock {
  kTaken,   // until the descriptor is closed
  kHeld,    // another has it
  kGone,    // the file was removed meanwhile, or another one is there now
  kFailed,  // errno says why
};

// Tries to lock the open file `fd` (flock), which was found at `path`. Does not wait.
FileLock TryLock(int fd, const std::string& path);

}  // namespace gantry
