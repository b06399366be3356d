// Facts about RDMA that the sidecar relies on, asked of the device at hand through libibverbs.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <functional>
#include <vector>

#include "tests/fakes/test_arena.h"
#include "tests/rdma/verbs_endpoint.h"

namespace gantry::testing {
namespace {

constexpr size_t kBytes = 64 << 10;
constexpr uid_t kNobody = 65534;
constexpr std::array<uint8_t, 4> kGuestAddress = {10, 99, 0, 1};

// A connection of two queue pairs of one device.
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

  const TestArena ours_{kBytes, 1};
  const TestArena theirs_{kBytes, 2};
  std::unique_ptr<VerbsEndpoint> source_, target_;
  MemoryRegion local_;
};

TEST_F(VerbsFacts, TheBytesAreThereWhenTheImmediateIs) {
  const MemoryRegion region = target_->Register(theirs_.bytes());
  target_->PostReceive();
  ASSERT_EQ(
      source_->WriteWithImmediate(*local_, ours_.bytes(), theirs_.data(), region->rkey, 0x01020304),
      IBV_WC_SUCCESS);
  const auto received = target_->NextCompletion();
  ASSERT_TRUE(received);
  EXPECT_EQ(received->status, IBV_WC_SUCCESS);
  EXPECT_EQ(received->opcode, IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(received->imm_data, 0x01020304u);
  EXPECT_EQ(std::memcmp(theirs_.data(), ours_.data(), kBytes), 0);
}

TEST_F(VerbsFacts, ARegionIsTheMemoryThatAnotherMappingOfTheFileShows) {
  const MemoryRegion region = target_->Register(theirs_.bytes());
  const UniqueFd file = theirs_.Fd();
  void* other = ::mmap(nullptr, kBytes, PROT_READ, MAP_SHARED, file.get(), 0);
  ASSERT_NE(other, MAP_FAILED);
  EXPECT_EQ(source_->Write(*local_, ours_.bytes(), theirs_.data(), region->rkey), IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(other, ours_.data(), kBytes), 0);
  ::munmap(other, kBytes);
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

// All that are free now, until this goes.
class HugePages {
 public:
  HugePages() {
    for (;;) {
      void* const taken = Map(-1, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_POPULATE);
      if (taken == MAP_FAILED) return;
      taken_.push_back(taken);
    }
  }
  HugePages(const HugePages&) = delete;
  HugePages& operator=(const HugePages&) = delete;
  ~HugePages() {
    for (void* const page : taken_) ::munmap(page, kBytes);
  }
  static void* Map(int fd, int flags) {
    return ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, flags, fd, 0);
  }
  static constexpr size_t kBytes = 2 << 20;

 private:
  std::vector<void*> taken_;
};

// How a process ends that does this with its own copy of all that is here.
int EndOfOneThat(const std::function<void()>& act) {
  const pid_t child = ::fork();
  if (child == 0) {
    act();
    ::_exit(0);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

TEST_F(VerbsFacts, APageThatIsTakenAwayKillsWhoReadsItAndNoDevice) {
  if (!InGuest()) GTEST_SKIP() << "asks for huge pages, and takes all of them";
  std::ofstream("/proc/sys/vm/nr_hugepages") << 2;
  const UniqueFd file(::memfd_create("pages", MFD_CLOEXEC | MFD_HUGETLB | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(file.get(), HugePages::kBytes), 0);
  ASSERT_EQ(::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  void* const mapped = HugePages::Map(file.get(), MAP_SHARED);
  ASSERT_NE(mapped, MAP_FAILED) << "no huge pages to be had";
  const std::span<uint8_t> bytes(static_cast<uint8_t*>(mapped), kBytes);
  std::memset(bytes.data(), 0x5a, bytes.size());
  const auto read = [&bytes] { (void)*static_cast<volatile uint8_t*>(bytes.data()); };
  MemoryRegion pinned = source_->Register(bytes);
  const MemoryRegion target = target_->Register(theirs_.bytes());
  EXPECT_EQ(EndOfOneThat(read), 0);
  ASSERT_EQ(
      ::fallocate(file.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, HugePages::kBytes), 0)
      << "it is sealed against shrinking, and that is none";
  {
    const HugePages no_more;
    EXPECT_EQ(EndOfOneThat(read), SIGBUS);
    EXPECT_EQ(source_->Write(*pinned, bytes, theirs_.data(), target->rkey), IBV_WC_SUCCESS);
    EXPECT_EQ(theirs_.bytes()[kBytes - 1], 0x5a) << "as it was when it was registered";
  }
  pinned.reset();
  ::munmap(mapped, HugePages::kBytes);
  std::ofstream("/proc/sys/vm/nr_hugepages") << 0;
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
