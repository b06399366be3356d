#include "sidecar/transport/rdma/completion_reason.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace gantry::transport {
namespace {

const WorkStatus kFailures[] = {WorkStatus::kLocalLength,
                                WorkStatus::kLocalQueuePair,
                                WorkStatus::kLocalProtection,
                                WorkStatus::kFlushed,
                                WorkStatus::kBindMemoryWindow,
                                WorkStatus::kBadResponse,
                                WorkStatus::kLocalAccess,
                                WorkStatus::kRemoteInvalidRequest,
                                WorkStatus::kRemoteAccess,
                                WorkStatus::kRemoteOperation,
                                WorkStatus::kRetryExceeded,
                                WorkStatus::kReceiverNotReady,
                                WorkStatus::kRemoteAborted,
                                WorkStatus::kFatal,
                                WorkStatus::kResponseTimeout,
                                WorkStatus::kGeneral,
                                static_cast<WorkStatus>(/* one that nobody knows */ 4711)};

Error Explain(WorkStatus status, uint32_t vendor_error = 0) {
  return ErrorOf({1, status, 2, vendor_error}, "mlx5_3", "decode-7");
}

TEST(CompletionReasonTest, EachSaysWhatHappenedWhereAndWhatToDo) {
  std::set<std::string_view> names;
  for (const WorkStatus status : kFailures) {
    const Error error = Explain(status);
    SCOPED_TRACE(error.message);
    EXPECT_NE(error.message.find("mlx5_3"), std::string::npos);
    EXPECT_NE(error.message.find("decode-7"), std::string::npos);
    EXPECT_NE(error.message.find(NameOf(status)), std::string::npos);
    EXPECT_NE(error.message.find("status " + std::to_string(static_cast<int>(status))),
              std::string::npos);
    EXPECT_EQ(error.message.find("vendor"), std::string::npos);
    names.insert(NameOf(status));
    // The first error of the queue pair says what to do about those that it flushed.
    if (status != WorkStatus::kFlushed) {
      EXPECT_FALSE(error.hint.empty());
    }
  }
  EXPECT_EQ(names.size(), std::size(kFailures) - 1) << "only unknown ones share a name";
}

TEST(CompletionReasonTest, TheVendorsNumberIsSaidWhereThereIsOne) {
  EXPECT_NE(Explain(WorkStatus::kGeneral, 129).message.find("vendor's 129"), std::string::npos);
}

TEST(CompletionReasonTest, CodesLeadToTheRightReaction) {
  EXPECT_EQ(Explain(WorkStatus::kRemoteAccess).code, ErrorCode::kStaleGeneration);
  EXPECT_EQ(Explain(WorkStatus::kLocalProtection).code, ErrorCode::kInternal);
  EXPECT_EQ(Explain(WorkStatus::kGeneral).code, ErrorCode::kDeviceError);
  // What may be sent again is nobody's mistake; what may not would fail again.
  for (const WorkStatus status : kFailures) {
    const ErrorCode code = Explain(status).code;
    SCOPED_TRACE(NameOf(status));
    EXPECT_EQ(MayBeTriedAgain(status), status == WorkStatus::kFlushed ||
                                           status == WorkStatus::kLocalQueuePair ||
                                           code == ErrorCode::kPeerUnavailable);
  }
}

}  // namespace
}  // namespace gantry::transport
