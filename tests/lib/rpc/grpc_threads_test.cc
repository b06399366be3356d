#include "lib/rpc/grpc_threads.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <iterator>
#include <string>

namespace gantry::rpc {
namespace {

size_t Tasks() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<size_t>(std::distance(begin(tasks), end(tasks)));
}

TEST(GrpcThreads, RoomLeavesNothingBehind) {
  const size_t before = Tasks();
  EXPECT_TRUE(RoomForThreads("the test", 20));
  EXPECT_LE(Tasks(), before + 1) << "a sanitizer may have one of its own";
}

// In a child, as the limit is of a user: one of its own, since root has none.
TEST(GrpcThreads, AWantOfRoomIsAnErrorThatNamesTheLimit) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const auto refused_in_child = [] {
    const rlimit limit = {5, 5};
    if (::setrlimit(RLIMIT_NPROC, &limit) != 0 || ::setuid(54'320) != 0) return false;
    const Status room = RoomForThreads("the test", 20);
    return !room && room.error().code == ErrorCode::kResourceExhausted &&
           room.error().message.starts_with("the test needs 20 threads at once, and ") &&
           room.error().message.find("RLIMIT_NPROC (ulimit -u) is 5") != std::string::npos &&
           !KeepGrpc();
  };
  EXPECT_EXIT(::_exit(refused_in_child() ? 0 : 1), ::testing::ExitedWithCode(0), "");
}

// Those that gRPC makes with its first channel are there before it.
TEST(GrpcThreads, KeptGrpcNeedsNoMoreForAChannel) {
  ASSERT_TRUE(KeepGrpc());
  const size_t before = Tasks();
  {
    const auto channel =
        grpc::CreateChannel("unix:///dev/null", grpc::InsecureChannelCredentials());
    EXPECT_LE(Tasks(), before + 1) << "its pool may have grown meanwhile";
  }
  EXPECT_GE(Tasks(), before) << "they stay";
}

}  // namespace
}  // namespace gantry::rpc
