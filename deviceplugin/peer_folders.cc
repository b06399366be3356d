#include "deviceplugin/peer_folders.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "lib/base/fd_passing.h"

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

// A sidecar that was killed leaves its sockets behind.
bool IsAbandonedSocket(const fs::path& path) {
  std::error_code error;
  if (!fs::is_socket(fs::symlink_status(path, error))) return false;
  for (const int type : {SOCK_STREAM, SOCK_SEQPACKET}) {
    if (ConnectUnix(path, type)) return false;
  }
  return true;
}

// Beside each socket a sidecar keeps a file that it locks, and leaves it.
bool IsLockFile(const fs::path& path) {
  std::error_code error;
  return path.native().ends_with(".peer.lock") &&
         fs::is_regular_file(fs::symlink_status(path, error)) && fs::file_size(path, error) == 0;
}

}  // namespace

Status PeerFolders::Prepare() const {
  std::error_code error;
  fs::create_directories(fs::path(parent_).parent_path(), error);
  return MakeFolder(parent_, kParentMode);
}

Status PeerFolders::Make(const std::string& folder) const {
  if (folder != parent_) RETURN_IF_ERROR(Prepare());
  return MakeFolder(folder, kFolderMode);
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

bool PeerFolders::Remove(const std::string& name) const {
  const fs::path folder = fs::path(parent_) / name;
  std::error_code error;
  std::vector<fs::path> abandoned;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (!IsAbandonedSocket(entry->path()) && !IsLockFile(entry->path())) return false;
    abandoned.push_back(entry->path());
  }
  for (const fs::path& path : abandoned) ::unlink(path.c_str());  // not before all were looked at
  return ::rmdir(folder.c_str()) == 0;
}

}  // namespace gantry::deviceplugin
