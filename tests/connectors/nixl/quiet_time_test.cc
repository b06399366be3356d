#include "connectors/nixl/transfer/quiet_time.h"

#include <gtest/gtest.h>

#include "client/include/gantry.h"
#include "lib/wire/session_times.h"

namespace gantry::nixl {
namespace {

milliseconds OwnWrite(std::string_view path) {
  return QuietTimeAfterLoss(Operation::kWrite, GANTRY_EXECUTOR_SELF, path);
}

TEST(QuietTime, CoversWhatTheTargetOfAWriteAppliesLater) {
  EXPECT_GE(OwnWrite("tcp"), wire::kPartLease + wire::kPartLeaseMargin);
  EXPECT_GE(OwnWrite("bounce"), wire::kQueuePairLease + wire::kStageCopyEnd);
  EXPECT_LT(OwnWrite("shm"), OwnWrite("tcp"));
}

TEST(QuietTime, CoversWhatAPeerExecutes) {
  for (const Operation operation : {Operation::kRead, Operation::kWrite}) {
    EXPECT_GE(QuietTimeAfterLoss(operation, GANTRY_EXECUTOR_PEER, "ipc"),
              wire::kSilenceMax + wire::kExecutionEndMax + wire::kExecutionEndCall);
  }
}

TEST(QuietTime, IsTheLongestWhereNothingIsKnown) {
  const milliseconds longest = QuietTimeAfterLoss(Operation::kWrite, GANTRY_EXECUTOR_PEER, "tcp");
  EXPECT_EQ(QuietTimeAfterLoss(Operation::kRead, 0, ""), longest);
  EXPECT_EQ(QuietTimeAfterLoss(Operation::kWrite, 0, ""), longest);
  EXPECT_EQ(OwnWrite(""), OwnWrite("bounce"));
}

TEST(QuietTime, OfAReadCoversACopyThatIsStopped) {
  EXPECT_GE(QuietTimeAfterLoss(Operation::kRead, GANTRY_EXECUTOR_SELF, "tcp"), wire::kQuiesceMax);
}

}  // namespace
}  // namespace gantry::nixl
