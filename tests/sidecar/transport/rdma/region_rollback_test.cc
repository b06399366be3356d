// Registrations that fail at any step, and removals that fail: nothing is left, nothing is hidden.
#include <gmock/gmock.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>

#include "sidecar/transport/rdma/verbs/verbs_error.h"
#include "tests/sidecar/transport/rdma/region_set_fixture.h"

namespace gantry::transport {
namespace {

using testing::FakeCall;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::TestArena;

constexpr size_t kChunks = 4;

class RegionRollbackTest : public RegionSetFixture {
 protected:
  RegionRollbackTest() {
    OpenTwo(64 * 1024, UINT64_MAX);
    allocation_ = Allocate(arena_);
  }
  Result<Set> RegisterAll() { return Register({{allocation_, 0, arena_.size()}}); }

  const TestArena arena_{kChunks * 64 * 1024};
  Allocation allocation_;
};

size_t LinesWith(const std::string& text, const std::string& what) {
  size_t lines = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++lines;
  return lines;
}

TEST_F(RegionRollbackTest, AFailureAtAnyChunkOnAnyDeviceLeavesNothing) {
  for (const std::string device : {"first", "second"}) {
    for (size_t chunk = 1; chunk <= kChunks; ++chunk) {
      SCOPED_TRACE(device + " " + std::to_string(chunk));
      host_->FailCall(device, FakeCall::kRegister, static_cast<int>(chunk), EIO);
      ::testing::internal::CaptureStderr();
      const auto refused = RegisterAll();
      EXPECT_EQ(::testing::internal::GetCapturedStderr(), "")
          << "nothing went wrong with taking back";
      ASSERT_FALSE(refused);
      EXPECT_EQ(refused.error().code, ErrorCode::kDeviceError);
      const uint64_t start = (chunk - 1) * 65536;
      EXPECT_EQ(refused.error().message, "registering bytes [" + std::to_string(start) + ", " +
                                             std::to_string(start + 65536) +
                                             ") of the buffer, chunk " + std::to_string(chunk) +
                                             " of 4, on RDMA device " + device + ": " + device +
                                             ": registering memory: Input/output error");
      EXPECT_NE(refused.error().hint, "");
      EXPECT_EQ(host_->live().regions, 0);
      EXPECT_TRUE(RegisterAll()) << "and it can be tried again";
      EXPECT_EQ(host_->live().regions, 0);
    }
  }
}

TEST_F(RegionRollbackTest,
       TakeBacksThatFailAreLoggedAndTheOthersAreTakenBackAndTheFirstErrorIsTold) {
  host_->FailCall("second", FakeCall::kRegister, 3, EIO);
  // Taken back from the last to the first: of chunks 3, 2, 1 on the first device the middle one.
  host_->FailCall("first", FakeCall::kDeregister, 2, EBUSY);
  host_->FailCall("second", FakeCall::kDeregister, 2, EINVAL);
  ::testing::internal::CaptureStderr();
  const auto refused = RegisterAll();
  const std::string written = ::testing::internal::GetCapturedStderr();
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("chunk 3 of 4, on RDMA device second"));
  EXPECT_THAT(refused.error().message, HasSubstr("Input/output error"));
  EXPECT_EQ(LinesWith(written, "could not be taken back"), 2u) << written;
  EXPECT_THAT(written, HasSubstr("\"offset\":65536,\"bytes\":65536"));
  EXPECT_THAT(written, HasSubstr("\"offset\":0,\"bytes\":65536"));
  EXPECT_THAT(written, HasSubstr("first: deregistering: Device or resource busy"));
  EXPECT_THAT(written, HasSubstr("second: deregistering: Invalid argument"));
  EXPECT_EQ(host_->live().regions, 2) << "those two alone";
  EXPECT_EQ(host_->calls("first", FakeCall::kDeregister), 3);
  EXPECT_EQ(host_->calls("second", FakeCall::kDeregister), 2);
}

TEST_F(RegionRollbackTest, ARemovalGoesOnPastFailures) {
  auto set = *RegisterAll();
  host_->FailCalls("first", FakeCall::kDeregister, EBUSY);
  ::testing::internal::CaptureStderr();
  set.reset();
  const std::string written = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(LinesWith(written, "could not be taken back"), kChunks) << written;
  EXPECT_THAT(written, HasSubstr("\"offset\":196608,"));
  EXPECT_EQ(host_->live().regions, static_cast<int>(kChunks)) << "the second device's are gone";
}

TEST_F(RegionRollbackTest, ARemovalThatIsAskedForReturnsTheFirstFailureAndIsDoneOnce) {
  const auto set = *RegisterAll();
  host_->FailCall("second", FakeCall::kDeregister, 2, EBUSY);
  host_->FailCall("first", FakeCall::kDeregister, 3, EINVAL);
  ::testing::internal::CaptureStderr();
  const Status gone = set->Deregister();
  ASSERT_FALSE(gone);
  EXPECT_THAT(gone.error().message, HasSubstr("second: deregistering: Device or resource busy"));
  EXPECT_EQ(host_->live().regions, 2) << "those two alone";
  EXPECT_EQ(set->Deregister().error().message, gone.error().message);
  const std::string written = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(LinesWith(written, "could not be taken back"), 2u) << written;
  EXPECT_EQ(host_->calls("first", FakeCall::kDeregister), static_cast<int>(kChunks));
}

TEST_F(RegionRollbackTest, WhereMemoryCannotBeLockedBothLimitsAreNamed) {
  struct rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_MEMLOCK, &before), 0);
  struct rlimit low = before;
  low.rlim_cur = std::min<rlim_t>(65536, before.rlim_max);
  ASSERT_EQ(::setrlimit(RLIMIT_MEMLOCK, &low), 0);
  host_->FailCalls("second", FakeCall::kRegister, ENOMEM);
  const auto refused = RegisterAll();
  ASSERT_EQ(::setrlimit(RLIMIT_MEMLOCK, &before), 0);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(refused.error().message,
              HasSubstr("may lock " + std::to_string(low.rlim_cur) + " bytes"));
  EXPECT_THAT(refused.error().message, HasSubstr("the device takes 524287 memory regions"));
  EXPECT_THAT(refused.error().hint, HasSubstr("LimitMEMLOCK"));
  EXPECT_EQ(host_->live().regions, 0);
}

TEST(VerbsErrorTest, WithoutALimitOnLockingTheDeviceIsFull) {
  const Error full = ExplainRegion(VerbsError("mlx5_0", "ibv_reg_mr", ENOMEM), std::nullopt, 7);
  EXPECT_EQ(full.message,
            "mlx5_0: ibv_reg_mr: Cannot allocate memory (this process may lock all that there is, "
            "and the device takes 7 memory regions)");
  EXPECT_THAT(full.hint, Not(HasSubstr("LimitMEMLOCK")));
  EXPECT_THAT(full.hint, HasSubstr("larger chunks"));
}

TEST(VerbsErrorTest, OtherErrorNumbersKeepTheirMeaning) {
  EXPECT_EQ(VerbsError("a", "b", EAGAIN).code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(VerbsError("a", "b", EOPNOTSUPP).code, ErrorCode::kPathUnavailable);
  const Error other = ExplainRegion(VerbsError("a", "b", EINVAL), 65536, 7);
  EXPECT_EQ(other.code, ErrorCode::kDeviceError);
  EXPECT_EQ(other.message, "a: b: Invalid argument") << "no limit that it is not about";
  EXPECT_THAT(other.hint, HasSubstr("largest memory region"));
}

TEST_F(RegionRollbackTest, ADeviceThatIsFullRefusesTheWholeBuffer) {
  testing::FakeDeviceOptions small{.name = "small"};
  small.limits.regions_max = 3;
  testing::FakeVerbs host(fabric_, {small});
  const auto device = *host.Open("small", 1);
  const std::vector<RegionDevice> devices = {{opened_[0].get(), 0}, {device.get(), 0}};
  const auto refused =
      MemoryRegionSet::Register(devices, {{allocation_, 0, arena_.size()}}, {true, true}, {});
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("chunk 4 of 4, on RDMA device small"));
  EXPECT_THAT(refused.error().message, HasSubstr("device takes 3 memory regions"));
  EXPECT_EQ(host.live().regions + host_->live().regions, 0);
}

TEST_F(RegionRollbackTest, AThousandRegistrationsAndRemovalsLeaveNothing) {
  for (int i = 0; i < 1000; ++i) {
    const auto offset = static_cast<uint64_t>(i) * 131 % 4096;
    const auto set = Register({{allocation_, offset, 130'000}, {allocation_, 0, arena_.size()}});
    ASSERT_TRUE(set) << set.error().message;
    ASSERT_EQ(host_->live().regions, static_cast<int>(2 * (*set)->chunks()));
  }
  EXPECT_EQ(host_->live().regions, 0);
  EXPECT_EQ(allocation_.use_count(), 1);
}

}  // namespace
}  // namespace gantry::transport
