// Facts about RDMA that the sidecar relies on, asked of the device at hand through libibverbs.
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "tests/fakes/test_arena.h"
#include "tests/rdma/verbs_endpoint.h"

namespace gantry::testing {
namespace {

constexpr size_t kChunk = 64 << 10;
constexpr uid_t kNobody = 65534;
constexpr std::array<uint8_t, 4> kGuestAddress = {10, 99, 0, 1};

// A connection of two queue pairs of one device. The target's arena is two chunks side by side.
class VerbsFacts : public VerbsTest {
 protected:
  void SetUp() override {
    VerbsTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    source_ = std::make_unique<VerbsEndpoint>(devices_.front());
    target_ = std::make_unique<VerbsEndpoint>(devices_.front());
    ASSERT_TRUE(source_->usable() && target_->usable());
    source_->Connect(*target_);
    local_ = source_->Register(ours_.bytes());
    ASSERT_NE(local_, nullptr);
  }

  std::span<uint8_t> Ours(size_t offset, size_t length) const {
    return ours_.bytes().subspan(offset, length);
  }
  std::span<uint8_t> Theirs(size_t offset, size_t length) const {
    return theirs_.bytes().subspan(offset, length);
  }
  ibv_wc_status Write(size_t length, const uint8_t* remote, uint32_t key) {
    return source_->Write(*local_, Ours(0, length), remote, key);
  }
  // After an error both ends of a connection are made anew; the regions stay.
  void ConnectAgain() {
    source_->Renew();
    target_->Renew();
    source_->Connect(*target_);
  }
  bool Untouched(size_t offset, size_t length) const {
    const TestArena before(2 * kChunk, 2);
    return std::equal(theirs_.data() + offset, theirs_.data() + offset + length,
                      before.data() + offset);
  }

  const TestArena ours_{2 * kChunk, 1};
  const TestArena theirs_{2 * kChunk, 2};
  std::unique_ptr<VerbsEndpoint> source_, target_;
  MemoryRegion local_;
};

TEST_F(VerbsFacts, AWriteAndAReadWithinTheRegionArrive) {
  const MemoryRegion region = target_->Register(theirs_.bytes());
  ASSERT_EQ(Write(kChunk, theirs_.data() + 100, region->rkey), IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(theirs_.data() + 100, ours_.data(), kChunk), 0);
  EXPECT_TRUE(Untouched(0, 100));
  EXPECT_TRUE(Untouched(100 + kChunk, kChunk - 100));
  ASSERT_EQ(source_->Read(*local_, Ours(kChunk, kChunk), theirs_.data() + kChunk, region->rkey),
            IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(ours_.data() + kChunk, theirs_.data() + kChunk, kChunk), 0);
}

TEST_F(VerbsFacts, AWriteBeyondTheRegionIsARemoteAccessErrorAndTheEndOfTheConnection) {
  const MemoryRegion region = target_->Register(Theirs(0, kChunk));
  EXPECT_EQ(Write(2, theirs_.data() + kChunk - 1, region->rkey), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(source_->State(), IBV_QPS_ERR);
  EXPECT_TRUE(Untouched(kChunk, kChunk));
  // What comes after it is flushed, however valid.
  EXPECT_EQ(Write(1, theirs_.data(), region->rkey), IBV_WC_WR_FLUSH_ERR);
  EXPECT_TRUE(Untouched(kChunk, kChunk));
}

TEST_F(VerbsFacts, AReadBeyondTheRegionIsARemoteAccessErrorAndBringsNothing) {
  const MemoryRegion region = target_->Register(Theirs(0, kChunk));
  EXPECT_EQ(source_->Read(*local_, Ours(0, kChunk), theirs_.data() + kChunk, region->rkey),
            IBV_WC_REM_ACCESS_ERR);
  const TestArena before(2 * kChunk, 1);
  EXPECT_EQ(std::memcmp(ours_.data(), before.data(), 2 * kChunk), 0);
}

TEST_F(VerbsFacts, ARegionsKeyOpensNoOtherChunk) {
  const MemoryRegion first = target_->Register(Theirs(0, kChunk));
  const MemoryRegion second = target_->Register(Theirs(kChunk, kChunk));
  EXPECT_NE(first->rkey, second->rkey);
  EXPECT_EQ(Write(16, theirs_.data() + kChunk, first->rkey), IBV_WC_REM_ACCESS_ERR);
  ConnectAgain();
  EXPECT_EQ(Write(16, theirs_.data(), second->rkey), IBV_WC_REM_ACCESS_ERR);
  EXPECT_TRUE(Untouched(0, 2 * kChunk));
  ConnectAgain();
  EXPECT_EQ(Write(16, theirs_.data() + kChunk, second->rkey), IBV_WC_SUCCESS);
}

TEST_F(VerbsFacts, WhatCrossesTheSeamOfTwoRegionsTakesTwoRequests) {
  const MemoryRegion first = target_->Register(Theirs(0, kChunk));
  const MemoryRegion second = target_->Register(Theirs(kChunk, kChunk));
  EXPECT_EQ(Write(8192, theirs_.data() + kChunk - 4096, first->rkey), IBV_WC_REM_ACCESS_ERR);
  EXPECT_TRUE(Untouched(kChunk, kChunk));
  ConnectAgain();
  EXPECT_EQ(Write(4096, theirs_.data() + kChunk - 4096, first->rkey), IBV_WC_SUCCESS);
  EXPECT_EQ(source_->Write(*local_, Ours(4096, 4096), theirs_.data() + kChunk, second->rkey),
            IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(theirs_.data() + kChunk - 4096, ours_.data(), 8192), 0);
}

TEST_F(VerbsFacts, ADeregisteredRegionIsRefused) {
  MemoryRegion region = target_->Register(theirs_.bytes());
  const uint32_t key = region->rkey;
  ASSERT_EQ(Write(16, theirs_.data() + kChunk, key), IBV_WC_SUCCESS);
  region.reset();
  EXPECT_EQ(Write(16, theirs_.data(), key), IBV_WC_REM_ACCESS_ERR);
  EXPECT_TRUE(Untouched(0, kChunk));
}

TEST_F(VerbsFacts, ARegionGrantsOnlyTheAccessItWasRegisteredWith) {
  const MemoryRegion readable = target_->Register(theirs_.bytes(), IBV_ACCESS_REMOTE_READ);
  const MemoryRegion writable =
      target_->Register(theirs_.bytes(), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  EXPECT_EQ(Write(16, theirs_.data(), readable->rkey), IBV_WC_REM_ACCESS_ERR);
  EXPECT_TRUE(Untouched(0, 2 * kChunk));
  ConnectAgain();
  EXPECT_EQ(source_->Read(*local_, Ours(0, 16), theirs_.data(), writable->rkey),
            IBV_WC_REM_ACCESS_ERR);
  ConnectAgain();
  EXPECT_EQ(source_->Read(*local_, Ours(0, 16), theirs_.data(), readable->rkey), IBV_WC_SUCCESS);
  EXPECT_EQ(Write(16, theirs_.data() + 16, writable->rkey), IBV_WC_SUCCESS);
}

TEST_F(VerbsFacts, NothingIsSentFromBeyondTheLocalRegion) {
  const MemoryRegion half = source_->Register(Ours(0, kChunk));
  const MemoryRegion region = target_->Register(theirs_.bytes());
  const ibv_wc_status status =
      source_->Write(*half, Ours(kChunk, 16), theirs_.data(), region->rkey);
  // Newer kernels flush it instead of naming the local error.
  EXPECT_TRUE(status == IBV_WC_LOC_PROT_ERR || status == IBV_WC_WR_FLUSH_ERR) << status;
  EXPECT_TRUE(Untouched(0, 2 * kChunk));
}

TEST_F(VerbsFacts, TheBytesAreThereWhenTheImmediateIs) {
  const MemoryRegion region = target_->Register(theirs_.bytes());
  target_->PostReceive();
  ASSERT_EQ(source_->WriteWithImmediate(*local_, Ours(0, kChunk), theirs_.data(), region->rkey,
                                        0x01020304),
            IBV_WC_SUCCESS);
  const auto received = target_->NextCompletion();
  ASSERT_TRUE(received);
  EXPECT_EQ(received->status, IBV_WC_SUCCESS);
  EXPECT_EQ(received->opcode, IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(received->imm_data, 0x01020304u);
  EXPECT_EQ(std::memcmp(theirs_.data(), ours_.data(), kChunk), 0);
}

TEST_F(VerbsFacts, ADestroyedQueuePairOfTheTargetLetsNothingIn) {
  const MemoryRegion region = target_->Register(theirs_.bytes());
  target_->DestroyQueuePair();
  EXPECT_EQ(Write(16, theirs_.data(), region->rkey), IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(source_->State(), IBV_QPS_ERR);
  EXPECT_TRUE(Untouched(0, 2 * kChunk));
}

TEST_F(VerbsFacts, ARegionIsTheMemoryThatAnotherMappingOfTheFileShows) {
  const MemoryRegion region = target_->Register(theirs_.bytes());
  const UniqueFd file = theirs_.Fd();
  void* other = ::mmap(nullptr, kChunk, PROT_READ, MAP_SHARED, file.get(), 0);
  ASSERT_NE(other, MAP_FAILED);
  EXPECT_EQ(Write(kChunk, theirs_.data(), region->rkey), IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(other, ours_.data(), kChunk), 0);
  ::munmap(other, kChunk);
}

// Who sends has to cut by it: soft-RoCE does not refuse what is longer, other devices do.
TEST_F(VerbsFacts, AMessageAsLongAsThePortAllowsArrives) {
  ibv_port_attr port{};
  ASSERT_EQ(ibv_query_port(source_->context(), 1, &port), 0);
  EXPECT_GE(port.max_msg_sz, 1u << 20);
  // It is 8 MiB for soft-RoCE of Linux 6.1.
  if (port.max_msg_sz > 64u << 20) GTEST_SKIP() << "that is " << port.max_msg_sz << " bytes here";
  const TestArena from(port.max_msg_sz, 3), to(port.max_msg_sz, 4);
  const MemoryRegion ours = source_->Register(from.bytes());
  const MemoryRegion theirs = target_->Register(to.bytes());
  ASSERT_EQ(source_->Write(*ours, from.bytes(), to.data(), theirs->rkey), IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(to.data(), from.data(), port.max_msg_sz), 0);
}

TEST_F(VerbsFacts, TheTableOfGidsHasTheIpv4AddressForRoceV2) {
  const auto gid = Ipv4Gid(source_->context());
  ASSERT_TRUE(gid);
  EXPECT_NE(gid->ndev_ifindex, 0u);
  if (!InGuest()) return;
  EXPECT_EQ(std::memcmp(gid->gid.raw + 12, kGuestAddress.data(), kGuestAddress.size()), 0);
}

TEST_F(VerbsFacts, WhatIsNoDmaBufCannotBeRegisteredAsOne) {
  const UniqueFd file = theirs_.Fd();
  errno = 0;
  const MemoryRegion region(ibv_reg_dmabuf_mr(target_->domain(), 0, kChunk, 0, file.get(),
                                              static_cast<int>(kAllRemoteAccess)));
  const int error = errno;
  EXPECT_EQ(region, nullptr);
  EXPECT_NE(error, 0);
  // Soft-RoCE refuses every dma-buf with the error by which a driver says that it has none.
  if (InGuest()) {
    EXPECT_EQ(error, EOPNOTSUPP) << std::strerror(error);
  }
}

// In a process of its own as an ordinary user with this limit of locked memory: 0, or the errno of
// registering so many bytes.
int RegisterAsNobody(const std::string& device, rlim_t limit, size_t length) {
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit wanted{limit, limit};
    if (::setrlimit(RLIMIT_MEMLOCK, &wanted) != 0 || ::setgid(kNobody) != 0 ||
        ::setuid(kNobody) != 0) {
      ::_exit(255);
    }
    const VerbsEndpoint endpoint(device);
    if (!endpoint.usable()) ::_exit(254);
    const TestArena memory(length);
    errno = 0;
    const unsigned access = IBV_ACCESS_LOCAL_WRITE;
    ibv_mr* region = ibv_reg_mr(endpoint.domain(), memory.data(), memory.size(), access);
    ::_exit(region == nullptr ? errno : 0);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << status;
  return WEXITSTATUS(status);
}

TEST_F(VerbsTest, LockedMemoryIsLimitedForOrdinaryUsers) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
  EXPECT_EQ(RegisterAsNobody(devices_.front(), 1 << 20, 2 << 20), ENOMEM);
  EXPECT_EQ(RegisterAsNobody(devices_.front(), 16 << 20, 2 << 20), 0);
  EXPECT_EQ(RegisterAsNobody(devices_.front(), RLIM_INFINITY, 2 << 20), 0);
}

}  // namespace
}  // namespace gantry::testing
