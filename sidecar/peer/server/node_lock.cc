#include "sidecar/peer/server/node_lock.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <thread>
#include <utility>

#include "lib/base/clock.h"
#include "lib/base/file_lock.h"

namespace gantry::peer {
namespace {

constexpr int kTries = 20;
constexpr milliseconds kBetweenTries{10};

Error TakenBy(const std::string& path, const struct stat& info) {
  if (S_ISREG(info.st_mode)) {
    return {ErrorCode::kConflict,
            path + " is the file of user " + std::to_string(info.st_uid) + ", and not of " +
                std::to_string(::geteuid()) + ", which this sidecar runs as",
            "a sidecar of this name that was killed left it, or somebody wants its name: remove it "
            "and the sockets beside it, as that user or as root, or choose another --name"};
  }
  return {ErrorCode::kConflict,
          path + " is no regular file: user " + std::to_string(info.st_uid) +
              " put something else there",
          "remove it, as that user or as root, or choose another --name"};
}

Result<UniqueFd> Open(const std::string& path) {
  constexpr int kHow = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  // Readable by all: the device plugin has no capabilities, and looks whether it is locked.
  UniqueFd fd(::open(path.c_str(), kHow, 0644));
  if (fd.valid()) return fd;
  Error error = SystemError(ErrorCode::kInvalidArgument, "open " + path, errno);
  struct stat info = {};
  if (::lstat(path.c_str(), &info) == 0) return Fail(TakenBy(path, info));
  return Fail(std::move(error));
}

}  // namespace

NodeLock::NodeLock(std::string path, UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}

// While it is locked: whoever opened it meanwhile sees that it is not at its path any more.
NodeLock::~NodeLock() {
  if (fd_.valid()) ::unlink(path_.c_str());
}

Result<NodeLock> NodeLock::Take(const std::string& path) {
  for (int i = 0; i < kTries; ++i) {
    ASSIGN_OR_RETURN(UniqueFd fd, Open(path));
    struct stat info = {};
    if (::fstat(fd.get(), &info) != 0) {
      return Fail(SystemError(ErrorCode::kInternal, "stat " + path, errno));
    }
    if (!S_ISREG(info.st_mode) || info.st_uid != ::geteuid()) return Fail(TakenBy(path, info));
    switch (TryLock(fd.get(), path)) {
      case FileLock::kTaken:
        return NodeLock(path, std::move(fd));
      case FileLock::kHeld:  // the node's device plugin may be looking whether it is
        std::this_thread::sleep_for(kBetweenTries);
        break;
      case FileLock::kGone:
        break;
      case FileLock::kFailed:
        return Fail(SystemError(ErrorCode::kInternal, "flock " + path, errno));
    }
  }
  return Fail(ErrorCode::kConflict, "another sidecar holds " + path,
              "give each sidecar of a node directory its own name");
}

}  // namespace gantry::peer
