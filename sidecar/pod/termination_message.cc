#include "sidecar/pod/termination_message.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/unique_fd.h"

namespace gantry::pod {
namespace {

// No more than what is shown, and no part of a character (UTF-8) at the end.
std::string_view Shown(std::string_view text) {
  if (text.size() <= kTerminationMessageBytesMax) return text;
  size_t length = kTerminationMessageBytesMax;
  while (length > 0 && (static_cast<unsigned char>(text[length]) & 0xc0U) == 0x80U) --length;
  return text.substr(0, length);
}

}  // namespace

void WriteTerminationMessage(const std::string& path, std::string_view text) {
  if (path.empty()) return;
  const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat info = {};
  if (!fd.valid() || ::fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) return;
  if (::ftruncate(fd.get(), 0) != 0) return;
  std::string_view left = Shown(text);
  while (!left.empty()) {
    const ssize_t written = ::write(fd.get(), left.data(), left.size());
    if (written <= 0) return;
    left.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace gantry::pod
