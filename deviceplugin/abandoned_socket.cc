#include "deviceplugin/abandoned_socket.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "lib/base/unique_fd.h"

namespace gantry::deviceplugin {
namespace {

namespace fs = std::filesystem;

}  // namespace

bool IsSocket(const std::string& path) {
  std::error_code error;
  return fs::is_socket(fs::symlink_status(path, error));
}

bool IsAbandonedSocket(const std::string& path) {
  if (!IsSocket(path) || ::faccessat(AT_FDCWD, path.c_str(), W_OK, AT_EACCESS) != 0) return false;
  // By way of its folder: the path on the host may be too long for an address, where the one in the
  // container is not.
  const fs::path name(path);
  const UniqueFd folder(
      ::open(name.parent_path().c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  const UniqueFd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!folder.valid() || !probe.valid()) return false;
  const std::string by_folder =
      "/proc/self/fd/" + std::to_string(folder.get()) + "/" + name.filename().string();
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (by_folder.size() >= sizeof(address.sun_path)) return false;
  std::memcpy(address.sun_path, by_folder.data(), by_folder.size());
  // One of another type answers EPROTOTYPE while it lives, one with a full queue EAGAIN.
  return ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) !=
             0 &&
         errno == ECONNREFUSED;
}

}  // namespace gantry::deviceplugin
