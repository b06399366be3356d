#include "lib/base/file_lock.h"

#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>

namespace gantry {

FileLock TryLock(int fd, const std::string& path) {
  const bool taken = ::flock(fd, LOCK_EX | LOCK_NB) == 0;
  if (!taken && errno != EWOULDBLOCK) return FileLock::kFailed;
  struct stat file = {};
  if (::fstat(fd, &file) != 0) return FileLock::kFailed;
  struct stat there = {};
  const bool same = ::lstat(path.c_str(), &there) == 0 && there.st_dev == file.st_dev &&
                    there.st_ino == file.st_ino;
  if (!same) return FileLock::kGone;
  return taken ? FileLock::kTaken : FileLock::kHeld;
}

}  // namespace gantry
