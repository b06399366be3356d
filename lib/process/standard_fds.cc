#include "lib/process/standard_fds.h"

#include <fcntl.h>
#include <unistd.h>

namespace gantry {
namespace {

// There is no stream yet to say more on.
constexpr int kExitNoNull = 127;

// Before the initializers of shared libraries: gRPC's opens a descriptor.
[[gnu::used, gnu::section(".preinit_array")]] void (*const kBeforeLibraries)() = &OpenStandardFds;

}  // namespace

void OpenStandardFds() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (::fcntl(fd, F_GETFD) >= 0) continue;
    // The kernel gives the lowest free number, which is this one.
    if (::open("/dev/null", O_RDWR) != fd) ::_exit(kExitNoNull);
  }
}

}  // namespace gantry
