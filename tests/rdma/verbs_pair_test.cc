// Between two devices with a cable: what arrives crossed it, also when it loses packets.
#include <cstring>
#include <fstream>

#include "tests/fakes/test_arena.h"
#include "tests/rdma/verbs_endpoint.h"

namespace gantry::testing {
namespace {

constexpr size_t kBlock = 32 << 10;
constexpr size_t kBlocks = 400;

uint64_t NumberIn(const std::string& path) {
  std::ifstream file(path);
  uint64_t number = 0;
  EXPECT_TRUE(file >> number) << path;
  return number;
}

class VerbsPair : public VerbsTest {
 protected:
  void SetUp() override {
    VerbsTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    if (InGuest()) {
      ASSERT_EQ(devices_, (std::vector<std::string>{"rxe0", "rxe1"}));
    }
    if (devices_.size() < 2) GTEST_SKIP() << "one RDMA device here, and it takes two";
    source_ = std::make_unique<VerbsEndpoint>(devices_.front());
    target_ = std::make_unique<VerbsEndpoint>(devices_.back());
    ASSERT_TRUE(source_->usable() && target_->usable());
    source_->Connect(*target_);
  }

  std::unique_ptr<VerbsEndpoint> source_, target_;
};

TEST_F(VerbsPair, BlocksArriveWhateverTheCableLoses) {
  const std::string interface = "/sys/class/net/rdma0/statistics/";
  const uint64_t sent_before = InGuest() ? NumberIn(interface + "tx_packets") : 0;
  const TestArena ours(kBlock * kBlocks, 1), theirs(kBlock * kBlocks, 2);
  const MemoryRegion local = source_->Register(ours.bytes());
  const MemoryRegion remote = target_->Register(theirs.bytes());
  // In the opposite order, so that a block in its old place is seen.
  for (size_t i = 0; i < kBlocks; ++i) {
    const size_t to = kBlocks - 1 - i;
    ASSERT_EQ(source_->Write(*local, ours.bytes().subspan(i * kBlock, kBlock),
                             theirs.data() + to * kBlock, remote->rkey),
              IBV_WC_SUCCESS)
        << "block " << i;
  }
  for (size_t i = 0; i < kBlocks; ++i) {
    const size_t to = kBlocks - 1 - i;
    ASSERT_EQ(std::memcmp(theirs.data() + to * kBlock, ours.data() + i * kBlock, kBlock), 0) << i;
  }
  if (!InGuest()) return;
  const uint64_t packets = kBlocks * kBlock / 4096;
  EXPECT_GE(NumberIn(interface + "tx_packets") - sent_before, packets);
  // Of packets sent again for being late there are some on a busy machine without any loss.
  const uint64_t gaps =
      NumberIn("/sys/class/infiniband/rxe1/ports/1/hw_counters/out_of_seq_request");
  if (CableLosesPackets()) {
    EXPECT_GT(gaps, 0u);
  }
}

TEST_F(VerbsPair, BothDirectionsOfAConnectionWork) {
  const TestArena ours(kBlock, 1), theirs(kBlock, 2), read(kBlock, 3);
  const MemoryRegion ours_there = source_->Register(ours.bytes());
  const MemoryRegion theirs_there = target_->Register(theirs.bytes());
  const MemoryRegion read_there = source_->Register(read.bytes());
  EXPECT_EQ(source_->Read(*read_there, read.bytes(), theirs.data(), theirs_there->rkey),
            IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(read.data(), theirs.data(), kBlock), 0);
  EXPECT_EQ(target_->Write(*theirs_there, theirs.bytes(), ours.data(), ours_there->rkey),
            IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(ours.data(), theirs.data(), kBlock), 0);
}

TEST_F(VerbsPair, AnAccessErrorComesBackOverTheCable) {
  // The target refuses once, and its queue pair says no more: where that one packet is lost, the
  // source has tried in vain. So where packets are lost one of several has to hear it.
  const int attempts = CableLosesPackets() ? 5 : 1;
  int refused = 0;
  for (int i = 0; i < attempts && refused == 0; ++i) {
    VerbsEndpoint source(devices_.front()), target(devices_.back());
    ASSERT_TRUE(source.usable() && target.usable());
    source.Connect(target);
    const TestArena ours(kBlock, 1), theirs(2 * kBlock, 2), before(2 * kBlock, 2);
    const MemoryRegion local = source.Register(ours.bytes());
    const MemoryRegion remote = target.Register(theirs.bytes().first(kBlock));
    const ibv_wc_status status =
        source.Write(*local, ours.bytes(), theirs.data() + kBlock, remote->rkey);
    EXPECT_EQ(std::memcmp(theirs.data(), before.data(), 2 * kBlock), 0);
    if (!CableLosesPackets() || status != IBV_WC_RETRY_EXC_ERR) {
      EXPECT_EQ(status, IBV_WC_REM_ACCESS_ERR);
    }
    if (status == IBV_WC_REM_ACCESS_ERR) ++refused;
  }
  EXPECT_EQ(refused, 1);
}

}  // namespace
}  // namespace gantry::testing
