#include "lib/base/fd_passing.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <fstream>

#include "lib/base/error.h"
#include "tests/fakes/test_folder.h"

namespace gantry {
namespace {

int OpenCount() {
  int count = 0;
  for (int fd = 0; fd < 1024; ++fd) count += ::fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
  return count;
}

class FdPassingTest : public ::testing::Test {
 protected:
  FdPassingTest() {
    int pair[2] = {-1, -1};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    here_.reset(pair[0]);
    there_.reset(pair[1]);
    file_.reset(::open(folder_.File("file").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600));
  }

  const testing::TestFolder folder_;
  UniqueFd here_;
  UniqueFd there_;
  UniqueFd file_;
};

TEST_F(FdPassingTest, CarriesUpToTheKernelsLimitCloseOnExec) {
  const int before = OpenCount();
  const std::vector<int> fds(kFdsPerMessageMax, file_.get());
  ASSERT_TRUE(SendMessage(here_.get(), "many", fds));
  {
    const auto message = ReceiveMessage(there_.get(), 16);
    ASSERT_TRUE(message) << message.error().message;
    EXPECT_EQ(message->payload, "many");
    EXPECT_FALSE(message->closed);
    ASSERT_EQ(message->fds.size(), kFdsPerMessageMax);
    EXPECT_NE(::fcntl(message->fds.back().get(), F_GETFD) & FD_CLOEXEC, 0);
  }
  EXPECT_EQ(OpenCount(), before);
  const std::vector<int> too_many(kFdsPerMessageMax + 1, file_.get());
  EXPECT_EQ(SendMessage(here_.get(), "x", too_many).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(SendMessage(here_.get(), "", {}).error().code, ErrorCode::kInvalidArgument);
}

TEST_F(FdPassingTest, OversizedMessageIsAnErrorAndLeaksNothing) {
  const int before = OpenCount();
  const std::vector<int> fds(3, file_.get());
  ASSERT_TRUE(SendMessage(here_.get(), std::string(17, 'x'), fds));
  ASSERT_TRUE(SendMessage(here_.get(), std::string(16, 'y'), {}));
  EXPECT_EQ(ReceiveMessage(there_.get(), 16).error().code, ErrorCode::kMalformedBody);
  EXPECT_EQ(OpenCount(), before);
  EXPECT_EQ(ReceiveMessage(there_.get(), 16)->payload, std::string(16, 'y'));
}

TEST_F(FdPassingTest, TooFewFreeDescriptorsIsAnErrorAndLeaksNothing) {
  const std::vector<int> fds(40, file_.get());
  ASSERT_TRUE(SendMessage(here_.get(), "x", fds));
  const int before = OpenCount();
  // UBSan opens a pipe to check a class that it has not met yet, such as the category of this
  // error.
  (void)SystemError(ErrorCode::kInternal, "", EMFILE);
  rlimit old = {};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &old), 0);
  rlimit tight = old;
  tight.rlim_cur = static_cast<rlim_t>(before) + 8;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &tight), 0);
  const auto message = ReceiveMessage(there_.get(), 16);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &old), 0);
  ASSERT_FALSE(message);
  EXPECT_EQ(message.error().code, ErrorCode::kResourceExhausted);
  EXPECT_NE(message.error().message.find(std::to_string(before + 8)), std::string::npos)
      << message.error().message << " names the limit";
  EXPECT_EQ(OpenCount(), before);
}

TEST_F(FdPassingTest, NonBlockingSocketsSayThatTheyWouldBlock) {
  ASSERT_EQ(::fcntl(here_.get(), F_SETFL, O_NONBLOCK), 0);
  EXPECT_EQ(ReceiveMessage(here_.get(), 16).error().code, ErrorCode::kDeadlineExceeded);
  Status sent;
  for (int i = 0; i < 100'000 && sent; ++i) sent = SendMessage(here_.get(), "x", {});
  ASSERT_FALSE(sent);
  EXPECT_EQ(sent.error().code, ErrorCode::kDeadlineExceeded);
}

TEST_F(FdPassingTest, ClosingIsSeenOnBothSides) {
  there_.reset();
  const auto message = ReceiveMessage(here_.get(), 16);
  ASSERT_TRUE(message);
  EXPECT_TRUE(message->closed);
  EXPECT_EQ(SendMessage(here_.get(), "x", {}).error().code, ErrorCode::kPeerLost);
}

TEST_F(FdPassingTest, CredentialsAreThoseOfTheConnectingProcess) {
  const auto credentials = CredentialsOf(here_.get());
  ASSERT_TRUE(credentials);
  EXPECT_EQ(credentials->pid, ::getpid());
  EXPECT_EQ(credentials->uid, ::getuid());
  EXPECT_FALSE(CredentialsOf(file_.get()));
}

TEST_F(FdPassingTest, ListenReplacesAStaleSocketAndNothingElse) {
  const std::string path = folder_.File("socket");
  { ASSERT_TRUE(ListenUnix(path, SOCK_SEQPACKET, 0600, 4)); }
  EXPECT_EQ(ConnectUnix(path, SOCK_SEQPACKET).error().code, ErrorCode::kPeerUnavailable);
  const auto listener = ListenUnix(path, SOCK_SEQPACKET, 0640, 4);
  ASSERT_TRUE(listener);
  EXPECT_TRUE(ConnectUnix(path, SOCK_SEQPACKET));
  struct stat info = {};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0640u);
  EXPECT_EQ(ListenUnix(folder_.File("file"), SOCK_STREAM, 0600, 4).error().code,
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(ListenUnix("/" + std::string(107, 'x'), SOCK_STREAM, 0600, 4).error().code,
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(ConnectUnix("", SOCK_STREAM).error().code, ErrorCode::kInvalidArgument);
}

TEST_F(FdPassingTest, ConnectWaitsNoLongerThanItIsTold) {
  const std::string path = folder_.File("socket");
  const auto listener = ListenUnix(path, SOCK_STREAM, 0600, 0);
  ASSERT_TRUE(listener);
  std::vector<UniqueFd> waiting;
  Result<UniqueFd> last;
  for (int i = 0; i < 8 && last; ++i) {
    last = ConnectUnix(path, SOCK_STREAM, milliseconds(50));
    if (last) waiting.push_back(*std::move(last));
  }
  ASSERT_FALSE(last);
  EXPECT_EQ(last.error().code, ErrorCode::kDeadlineExceeded);
  EXPECT_NE(last.error().message.find("50 ms"), std::string::npos);
}

TEST_F(FdPassingTest, UniqueFdClosesOnceAndDuplicates) {
  const int raw = file_.get();
  UniqueFd moved = std::move(file_);
  EXPECT_EQ(moved.get(), raw);
  auto copy = moved.Duplicate();
  ASSERT_TRUE(copy);
  EXPECT_NE(copy->get(), raw);
  EXPECT_NE(::fcntl(copy->get(), F_GETFD) & FD_CLOEXEC, 0);
  moved.reset();
  EXPECT_LT(::fcntl(raw, F_GETFD), 0);
  EXPECT_GE(::fcntl(copy->get(), F_GETFD), 0);
  const UniqueFd released(copy->release());
  EXPECT_FALSE(copy->valid());
  EXPECT_FALSE(UniqueFd().Duplicate());
}

}  // namespace
}  // namespace gantry
