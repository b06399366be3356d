#include "lib/process/standard_fds.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

namespace gantry {
namespace {

bool IsNull(int fd) {
  struct stat is = {};
  struct stat null = {};
  return ::fstat(fd, &is) == 0 && ::stat("/dev/null", &null) == 0 && is.st_rdev == null.st_rdev &&
         (::fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDWR;
}

// In a child, whose standard streams nobody needs. Exits with 0 when all is as it should be.
[[noreturn]] void CloseAndOpen(const std::vector<int>& closed) {
  int pipe[2];
  if (::pipe(pipe) != 0) ::_exit(2);
  for (int fd = 0; fd <= 2; ++fd) ::dup2(pipe[1], fd);
  for (const int fd : closed) ::close(fd);
  OpenStandardFds();
  for (int fd = 0; fd <= 2; ++fd) {
    const bool was_closed = std::find(closed.begin(), closed.end(), fd) != closed.end();
    if (IsNull(fd) != was_closed) ::_exit(3);
  }
  ::_exit(::open("/dev/null", O_RDONLY) > 2 ? 0 : 4);
}

TEST(StandardFdsTest, TheClosedOnesAreNullAndTheOthersWhatTheyWere) {
  for (const std::vector<int>& closed :
       std::vector<std::vector<int>>{{}, {0}, {1}, {2}, {0, 2}, {1, 2}, {0, 1, 2}}) {
    EXPECT_EXIT(CloseAndOpen(closed), ::testing::ExitedWithCode(0), "");
  }
}

}  // namespace
}  // namespace gantry
