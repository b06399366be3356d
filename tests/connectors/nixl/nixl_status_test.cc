#include "connectors/nixl/transfer/nixl_status.h"

#include <gtest/gtest.h>

namespace gantry::nixl {
namespace {

TEST(NixlStatus, OfLostMemoryOfTheOtherAgentForgetsIt) {
  EXPECT_EQ(StatusOf(Error(ErrorCode::kUnregistered, "gone", {}, "/remote/0")),
            NixlStatus::kRemoteDisconnect);
  EXPECT_EQ(StatusOf(Error(ErrorCode::kPeerLost, "gone")), NixlStatus::kRemoteDisconnect);
}

TEST(NixlStatus, OfLostMemoryOfThisAgentIsNoFaultOfTheOther) {
  for (const char* field : {"local", "local/0", "/local/3"}) {
    EXPECT_EQ(StatusOf(Error(ErrorCode::kUnregistered, "gone", {}, field)), NixlStatus::kBackend);
  }
  EXPECT_EQ(StatusOf(Error(ErrorCode::kOutOfRange, "beyond", {}, "/local/3")),
            NixlStatus::kInvalidParameter);
}

TEST(NixlStatus, OfRegisteringMemoryIsNoFaultOfTheOther) {
  for (const ErrorCode code : {ErrorCode::kStaleGeneration, ErrorCode::kConflict,
                               ErrorCode::kDraining, ErrorCode::kSidecarLost}) {
    EXPECT_EQ(StatusOfOwn(Error(code, "gone", {}, "address")), NixlStatus::kBackend);
  }
  EXPECT_EQ(StatusOfOwn(Error(ErrorCode::kNotExportable, "in a heap")), NixlStatus::kNotSupported);
}

}  // namespace
}  // namespace gantry::nixl
