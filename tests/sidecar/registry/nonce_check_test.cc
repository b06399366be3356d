// Verified registration: what the workers are asked, and that nothing stays where one disagrees.
#include <limits>
#include <string_view>

#include "tests/sidecar/registry/registry_fixture.h"

namespace gantry::registry {
namespace {

class NonceCheckTest : public TwoArenasTest {
 protected:
  NonceCheckTest() {
    request_.buffers = {View("a", {{0, 4096, 100}}), View("b", {{1, 0, 10}, {0, 7, 3}})};
  }
  static std::string_view BytesOf(const memory::MemoryProbe& probe) {
    return {probe.bytes.data(), probe.length};
  }
};

TEST_F(NonceCheckTest, WithoutNoncesNobodyIsAsked) {
  mapper_.SetComparison(Fail(ErrorCode::kInternal, "asked"));
  const auto buffers = registry_.Register(request_);
  ASSERT_TRUE(buffers);
  EXPECT_EQ((*buffers)[0]->state(), BufferState::kActive);
}

TEST_F(NonceCheckTest, OffsetsAreThoseOfTheAllocationAndASeamCutsANonce) {
  request_.buffers[0].verify = {{0, "first"}, {95, "tail!"}};
  request_.buffers[1].verify = {{8, "seam."}};
  const auto buffers = registry_.Register(request_);
  ASSERT_TRUE(buffers) << buffers.error().message;
  const auto probes = mapper_.probes();
  ASSERT_EQ(probes.size(), 4u);
  EXPECT_EQ(probes[0].offset, 4096u);
  EXPECT_EQ(BytesOf(probes[0]), "first");
  EXPECT_EQ(probes[1].offset, 4096u + 95);
  EXPECT_EQ(probes[2].offset, 8u);
  EXPECT_EQ(BytesOf(probes[2]), "se");
  EXPECT_EQ(probes[3].offset, 7u);
  EXPECT_EQ(BytesOf(probes[3]), "am.");
  EXPECT_EQ(probes[0].mapping, probes[3].mapping);
  EXPECT_NE(probes[0].mapping, probes[2].mapping);
}

TEST_F(NonceCheckTest, OnlyVerifiedBuffersBeginSuspendedAndKeepTheirMapping) {
  request_.buffers[0].verify = {{0, "x"}};
  const auto buffers = registry_.Register(request_);
  ASSERT_TRUE(buffers);
  EXPECT_EQ((*buffers)[0]->state(), BufferState::kSuspended);
  EXPECT_EQ((*buffers)[1]->state(), BufferState::kActive);
  const int maps = mapper_.maps();
  ASSERT_TRUE(registry_.Resume((*buffers)[0]->description().id));
  EXPECT_EQ((*buffers)[0]->state(), BufferState::kActive);
  EXPECT_EQ(mapper_.maps(), maps);  // what was verified is what is used
}

TEST_F(NonceCheckTest, AMismatchLeavesNothingAndNamesThePlace) {
  request_.buffers[0].verify = {{0, "x"}};
  request_.buffers[1].verify = {{0, "y"}, {8, "seam."}};
  mapper_.SetComparison(memory::ProbeMismatch{3, "copy worker 7", "00ff"});
  const auto outcome = registry_.Register(request_);
  ASSERT_TRUE(FailsWith(outcome, ErrorCode::kVerificationFailed));
  EXPECT_EQ(outcome.error().field, "/buffers/1/verify/1");
  const std::string& said = outcome.error().message;
  for (const char* part : {"buffer 'b'", "copy worker 7", "at offset 10 ", "00ff"}) {
    EXPECT_NE(said.find(part), std::string::npos) << said;
  }
  EXPECT_EQ(mapper_.live(), 0u);
  EXPECT_EQ(registry_.Totals().buffers, 0u);
}

TEST_F(NonceCheckTest, WorkersThatCannotLookRefuseAll) {
  request_.buffers[1].verify = {{0, "y"}};
  mapper_.SetComparison(Fail(ErrorCode::kWorkerLost, "gone"));
  ExpectRefused(ErrorCode::kWorkerLost, "");
}

TEST_F(NonceCheckTest, ABufferThatIsThereIsVerifiedAndStaysAsItIs) {
  const auto first = registry_.Register(request_);
  ASSERT_TRUE(first);
  request_.buffers[0].verify = {{0, "x"}};
  const auto again = registry_.Register(request_);
  ASSERT_TRUE(again);
  EXPECT_EQ((*again)[0], (*first)[0]);
  EXPECT_EQ((*again)[0]->state(), BufferState::kActive);
  ASSERT_EQ(mapper_.probes().size(), 1u);
  mapper_.SetComparison(memory::ProbeMismatch{0, "copy worker 0", "00"});
  EXPECT_TRUE(FailsWith(registry_.Register(request_), ErrorCode::kVerificationFailed));
  EXPECT_EQ((*first)[0]->state(), BufferState::kActive);
  EXPECT_EQ(registry_.Totals().buffers, 2u);
}

TEST_F(NonceCheckTest, PlacesLieInTheBuffer) {
  constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();
  for (const uint64_t offset : {uint64_t{97}, uint64_t{100}, kMax - 3, kMax}) {
    request_.buffers[0].verify = {{0, "fits"}, {offset, "nope"}};
    ExpectRefused(ErrorCode::kOutOfRange, "/buffers/0/verify/1/offset");
  }
  request_.buffers[0].verify = {{0, ""}};
  ExpectRefused(ErrorCode::kInvalidArgument, "/buffers/0/verify/0/nonce");
  request_.buffers[0].verify = {{0, std::string(17, 'x')}};
  ExpectRefused(ErrorCode::kInvalidArgument, "/buffers/0/verify/0/nonce");
}

class FewNoncesTest : public RegistryFixture {
 protected:
  FewNoncesTest() : RegistryFixture({.nonces_per_request_max = 3}) {}
};

TEST_F(FewNoncesTest, OfOneRequestTogether) {
  wire::RegistrationRequest request = RequestOver({{Memory(kMiB), kMiB}});
  request.buffers = {View("a", {{0, 0, 10}}), View("b", {{0, 0, 10}})};
  request.buffers[0].verify = {{0, "x"}, {1, "x"}};
  request.buffers[1].verify = {{0, "x"}, {1, "x"}};
  const auto outcome = registry_.Register(request);
  ASSERT_TRUE(FailsWith(outcome, ErrorCode::kBodyTooLarge));
  EXPECT_EQ(outcome.error().field, "/buffers/1/verify");
  request.buffers[1].verify.pop_back();
  EXPECT_TRUE(registry_.Register(request));
}

}  // namespace
}  // namespace gantry::registry
