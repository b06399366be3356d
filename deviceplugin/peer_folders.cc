#include "deviceplugin/peer_folders.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <string_view>

#include "deviceplugin/abandoned_socket.h"
#include "lib/base/file_lock.h"
#include "lib/base/unique_fd.h"

namespace gantry::deviceplugin {
namespace {

namespace fs = std::filesystem;

constexpr mode_t kParentMode = 0711;
constexpr mode_t kFolderMode = 01777;  // as /tmp: who made a socket removes it

Status MakeFolder(const std::string& folder, mode_t mode) {
  if (::mkdir(folder.c_str(), mode) != 0 && errno != EEXIST) {
    Error error = SystemError(ErrorCode::kInternal, "making the folder " + folder, errno);
    error.hint = "--peer-dir must be a folder of the host, mounted for writing";
    return Fail(std::move(error));
  }
  if (::chmod(folder.c_str(), mode) != 0) {  // whatever the umask is
    return Fail(SystemError(ErrorCode::kInternal, "setting the mode of " + folder, errno));
  }
  return {};
}

// Of a folder at a time: pods write there as many as they like.
constexpr int kEntriesMax = 4096;

// What a sidecar puts there beside its lock, see PeerServer.
constexpr std::string_view kLockSuffix = ".peer.lock";
constexpr std::array<std::string_view, 2> kSocketSuffixes = {".peer.sock", ".fds.sock"};

// Some of them, where there are more files than a folder of sidecars has.
std::vector<fs::path> LocksIn(const std::string& folder) {
  std::vector<fs::path> locks;
  int entries = 0;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end;
       !error && entry != end && entries < kEntriesMax; entry.increment(error), ++entries) {
    if (entry->path().string().ends_with(kLockSuffix)) locks.push_back(entry->path());
  }
  return locks;
}

// Nothing: it is no lock, or this user may not read it.
UniqueFd OpenLock(const fs::path& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat info = {};
  if (!fd.valid() || ::fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) return {};
  return fd;
}

// Nothing: somebody holds it, or it is no lock.
UniqueFd TakeAbandonedLock(const fs::path& path) {
  UniqueFd fd = OpenLock(path);
  if (!fd.valid() || TryLock(fd.get(), path) != FileLock::kTaken) return {};
  return fd;
}

// Whose lock nobody holds has ended, and its sockets are nobody's. While the lock is held: a
// sidecar that starts meanwhile has to wait, or finds nothing.
void RemoveWithLock(const fs::path& lock) {
  const std::string base = lock.string().substr(0, lock.string().size() - kLockSuffix.size());
  for (const std::string_view suffix : kSocketSuffixes) {
    const std::string socket = base + std::string(suffix);
    if (IsSocket(socket)) ::unlink(socket.c_str());
  }
  ::unlink(lock.c_str());
}

}  // namespace

void PeerFolders::RemoveAbandoned(const std::string& folder) const {
  for (const fs::path& lock : LocksIn(folder)) {
    if (const UniqueFd held = TakeAbandonedLock(lock); held.valid()) RemoveWithLock(lock);
  }
}

size_t PeerFolders::Living(const std::string& folder) const {
  const auto locks = LocksIn(folder);
  return static_cast<size_t>(std::count_if(locks.begin(), locks.end(), [](const fs::path& path) {
    const UniqueFd fd = OpenLock(path);
    return fd.valid() && TryLock(fd.get(), path) == FileLock::kHeld;
  }));
}

Status PeerFolders::Prepare() const {
  std::error_code error;
  fs::create_directories(fs::path(parent_).parent_path(), error);
  return MakeFolder(parent_, kParentMode);
}

Status PeerFolders::Make(const std::string& folder) const {
  if (folder != parent_) RETURN_IF_ERROR(Prepare());
  const MutexLock lock(mutex_);
  made_[fs::path(folder).filename()] = ++times_made_;
  return MakeFolder(folder, kFolderMode);
}

uint64_t PeerFolders::TimesMade() const {
  const MutexLock lock(mutex_);
  return times_made_;
}

std::vector<std::string> PeerFolders::Namespaces() const {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(parent_, error), end; !error && entry != end;
       entry.increment(error)) {
    if (fs::is_directory(entry->symlink_status(error))) names.push_back(entry->path().filename());
  }
  return names;
}

bool PeerFolders::Remove(const std::string& name, uint64_t times_made) const {
  const fs::path folder = fs::path(parent_) / name;
  RemoveAbandoned(folder);
  int entries = 0;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (++entries > kEntriesMax || !IsAbandonedSocket(entry->path())) return false;
    ::unlink(entry->path().c_str());
  }
  const MutexLock lock(mutex_);
  const auto made = made_.find(name);
  if (made != made_.end() && made->second > times_made) return false;
  if (::rmdir(folder.c_str()) != 0) return false;
  made_.erase(name);
  return true;
}

}  // namespace gantry::deviceplugin
