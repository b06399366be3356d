#include "sidecar/transport/rdma/verbs/completion_reason.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "sidecar/metrics/metric_labels.h"
#include "sidecar/metrics/metrics.h"
#include "tests/sidecar/metrics/exposition.h"

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
    EXPECT_FALSE(error.hint.empty());
  }
  EXPECT_EQ(names.size(), std::size(kFailures) - 1) << "only unknown ones share a name";
}

TEST(CompletionReasonTest, TheVendorsNumberIsSaidWhereThereIsOne) {
  EXPECT_NE(Explain(WorkStatus::kGeneral, 129).message.find("vendor's 129"), std::string::npos);
}

// The reasons of the errors that these metrics have counted, each as often as it was counted.
template <size_t kCount>
std::multiset<std::string> Counted(const metrics::Exposition& now, const std::string& metric,
                                   const std::array<std::string_view, kCount>& reasons) {
  std::multiset<std::string> counted;
  for (const std::string_view reason : reasons) {
    const std::string name(reason);
    const double count = now.At(metric + "{path=\"rdma\",reason=\"" + name + "\"}");
    for (double i = 0; i < count; ++i) counted.insert(name);
  }
  return counted;
}

TEST(CompletionReasonTest, EachIsCountedOnceWhereItsReasonBelongs) {
  // What is nobody's but this program's mistake is internal.
  const std::map<WorkStatus, std::string> transport = {
      {WorkStatus::kLocalLength, "internal"},
      {WorkStatus::kLocalProtection, "internal"},
      {WorkStatus::kLocalAccess, "internal"},
      {WorkStatus::kFlushed, "disconnect"},
      {WorkStatus::kRemoteAborted, "disconnect"},
      {WorkStatus::kRetryExceeded, "peer_unavailable"},
      {WorkStatus::kReceiverNotReady, "peer_unavailable"},
      {WorkStatus::kResponseTimeout, "peer_unavailable"}};
  for (const WorkStatus status : kFailures) {
    SCOPED_TRACE(NameOf(status));
    metrics::Metrics metrics("test");
    metrics.PathError(wire::Path::kRdma, Explain(status).code);
    const metrics::Exposition now(metrics.Text());
    const auto access = Counted(now, "gantry_access_errors_total", metrics::kAccessReasonNames);
    const auto other =
        Counted(now, "gantry_transport_errors_total", metrics::kTransportReasonNames);
    const auto expected = transport.find(status);
    if (expected != transport.end()) {
      EXPECT_TRUE(access.empty());
      EXPECT_EQ(other, std::multiset<std::string>{expected->second});
      continue;
    }
    const bool refused = status == WorkStatus::kRemoteAccess;
    EXPECT_EQ(access, std::multiset<std::string>{refused ? "stale_generation" : "device_error"});
    EXPECT_TRUE(other.empty());
  }
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
