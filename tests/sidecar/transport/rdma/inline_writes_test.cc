// Which work requests the sidecar reads itself: short writes of host memory, where it was asked to.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tests/sidecar/transport/rdma/fake_rdma_place.h"

namespace gantry::transport {
namespace {

using gantry::testing::FakeDeviceOptions;
using gantry::testing::FakeWork;
using gantry::testing::TestArena;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr uint64_t kWrittenBytes = 64 << 10;
constexpr uint64_t kBefore = 64;  // the first block
constexpr uint32_t kInline = 200;
constexpr char kSaid[] = "takes shorter writes inline than --rdma-inline-bytes";

class InlineWrites : public ::testing::Test {
 protected:
  void Make(uint32_t inline_bytes, uint32_t inline_bytes_max = 512) {
    RdmaOptions options;
    options.inline_bytes = inline_bytes;
    FakeDeviceOptions device{.name = "nic", .dmabuf = true};
    device.inline_bytes_max = inline_bytes_max;
    place_.emplace(std::vector{device}, options);
  }
  RdmaWorld& world() { return place_->world(); }
  FakeWork work() { return place_->here().work("nic"); }

  // So many blocks of `length` bytes, apart from each other, and nothing beside them. Returns how
  // many of the work requests were inlined.
  uint64_t Move(wire::Operation direction, uint64_t length, uint32_t blocks = 5) {
    const bool writes = direction == wire::Operation::kWrite;
    const TestArena& to = writes ? there_ : here_;
    std::memset(to.data(), 0, kWrittenBytes);
    auto plan =
        PlanOf(direction, world().Local(here_), world().Remote(world().Describe(there_)), 0, 0, 0);
    MoveSegment segment;
    segment.local_offset = segment.remote_offset = kBefore;
    segment.length = length;
    segment.local_stride = segment.remote_stride = 2 * length;
    segment.count = blocks;
    plan->segments = {};
    plan->segments.push_back(segment);
    plan->bytes = segment.bytes();
    const FakeWork before = work();
    const auto operation = world().transport_.Start(world().WithNics(plan), 0, ++token_);
    EXPECT_TRUE(world().Finish(*operation));
    EXPECT_FALSE(operation->error()) << operation->error()->message;
    std::vector<std::byte> expected(kWrittenBytes);
    for (uint64_t i = 0; i < blocks; ++i) {
      const uint64_t at = kBefore + i * 2 * length;
      std::memcpy(&expected[at], (writes ? here_ : there_).data() + at, length);
    }
    EXPECT_EQ(std::memcmp(to.data(), expected.data(), kWrittenBytes), 0) << length << " bytes";
    EXPECT_EQ(work().writes - before.writes, writes ? blocks : 0U);
    return work().inlined - before.inlined;
  }
  uint64_t Write(uint64_t length) { return Move(wire::Operation::kWrite, length); }

  const TestArena here_{kWrittenBytes, 1};
  const TestArena there_{kWrittenBytes, 2};
  std::optional<FakeRdmaPlace> place_;
  uint64_t token_ = 0;
};

TEST_F(InlineWrites, AreThoseUpToWhatWasAskedFor) {
  Make(kInline);
  for (const uint64_t length : {1U, 16U, 199U, kInline}) EXPECT_EQ(Write(length), 5u) << length;
  for (const uint64_t length : {kInline + 1, 512U, 4096U}) EXPECT_EQ(Write(length), 0u) << length;
}

TEST_F(InlineWrites, AreNoneWhereNobodyAskedForThem) {
  Make(0);
  for (const uint64_t length : {1U, 8U, 16U, 200U}) EXPECT_EQ(Write(length), 0u) << length;
}

TEST_F(InlineWrites, AreNoneOfAFileThatCanShrink) {
  Make(kInline);
  const TestArena unsealed(kWrittenBytes, TestArena::Unsealed());
  for (const auto& [arena, inlined] : {std::pair(&here_, 1U), std::pair(&unsealed, 0U)}) {
    auto plan = PlanOf(wire::Operation::kWrite, world().Local(*arena),
                       world().Remote(world().Describe(there_)), 0, 0, 100);
    const uint64_t before = work().inlined;
    const auto operation = world().transport_.Start(world().WithNics(plan), 0, ++token_);
    EXPECT_TRUE(world().Finish(*operation));
    EXPECT_FALSE(operation->error()) << operation->error()->message;
    EXPECT_EQ(work().inlined - before, inlined);
  }
}

TEST_F(InlineWrites, AreNoReads) {
  Make(kInline);
  for (const uint64_t length : {1U, 8U, 200U}) {
    EXPECT_EQ(Move(wire::Operation::kRead, length), 0u) << length;
  }
}

// Of which no byte is mapped here.
TEST_F(InlineWrites, AreNotOfMemoryOfAGpu) {
  Make(kInline);
  world().UseGpuHere();
  for (const uint64_t length : {1U, 200U, 201U}) EXPECT_EQ(Write(length), 0u) << length;
}

TEST_F(InlineWrites, MayGoToMemoryOfAGpu) {
  Make(kInline);
  world().UseGpuThere();
  EXPECT_EQ(Write(kInline), 5u);
  EXPECT_EQ(Write(kInline + 1), 0u);
}

TEST_F(InlineWrites, AreAsShortAsTheDeviceTakesThemWhichIsSaidOnce) {
  ::testing::internal::CaptureStderr();
  Make(kInline, kInline - 1);
  EXPECT_EQ(Write(16), 5u);
  EXPECT_EQ(Write(17), 0u);
  EXPECT_EQ(Write(kInline), 0u);
  const std::string log = ::testing::internal::GetCapturedStderr();
  ASSERT_THAT(log, HasSubstr(kSaid));
  EXPECT_THAT(log.substr(log.find(kSaid) + 1), Not(HasSubstr(kSaid))) << "once";
  EXPECT_THAT(log, HasSubstr(R"("device":"nic","bytes":16,"asked_for":200)"));
}

TEST_F(InlineWrites, WhereTheDeviceTakesThemAllNothingIsSaid) {
  ::testing::internal::CaptureStderr();
  Make(kInline, kInline);
  EXPECT_EQ(Write(kInline), 5u);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), Not(HasSubstr(kSaid)));
}

TEST_F(InlineWrites, ADeviceThatTakesNoneMovesTheBytesAsEver) {
  Make(kInline, 0);
  for (const uint64_t length : {1U, 16U, 200U}) EXPECT_EQ(Write(length), 0u) << length;
}

}  // namespace
}  // namespace gantry::transport
