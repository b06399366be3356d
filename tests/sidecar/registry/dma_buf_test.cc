// Dma-bufs of memory of GPUs as the registry has them: what is said of them is checked, each is
// kept with its allocation, and closed when nothing needs it.
#include <gmock/gmock.h>
#include <unistd.h>

#include <functional>

#include "tests/fakes/gpu_allocation_spec.h"
#include "tests/sidecar/registry/registry_fixture.h"

namespace gantry::registry {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kPage = 4096;

// Devices that take what has a dma-buf, and keep what they saw.
class FakeNics final : public memory::NicRegistrar {
 public:
  Result<std::shared_ptr<const memory::NicMemory>> Register(
      const std::vector<memory::NicPiece>& pieces, const wire::Access&) override {
    struct Registered final : memory::NicMemory {
      size_t chunks() const override { return 1; }
      Status Deregister() const override { return {}; }
    };
    for (const memory::NicPiece& piece : pieces) {
      seen.push_back(piece.allocation->dma_buf());
      if (seen.back().fd == nullptr) {
        return Fail(ErrorCode::kPathUnavailable, "no dma-buf: " + seen.back().why_none);
      }
    }
    return std::make_shared<const Registered>();
  }
  std::vector<memory::DmaBuf> seen;
};

class DmaBufTest : public RegistryFixture {
 protected:
  // An allocation of a MiB, at byte 512 of its dma-buf.
  wire::AllocationSpec OnGpu(const std::string& token) {
    wire::AllocationSpec spec = gantry::testing::GpuAllocationSpec(kMiB);
    if (!token.empty()) spec.dma_buf = wire::DmaBufSpec{token, 512, kMiB + kPage};
    return spec;
  }
  Result<std::vector<std::shared_ptr<Buffer>>> Register(const wire::AllocationSpec& spec,
                                                        const std::string& name = "k") {
    wire::RegistrationRequest request;
    request.workload = owner_.name;
    request.allocations = {spec};
    request.buffers = {View(name, {{0, 512, 64}})};
    return registry_.Register(request);
  }
  std::string DmaBufToken() { return Memory(kMiB + kPage); }
};

TEST_F(DmaBufTest, ItIsKeptOnceWithItsAllocationAndClosedWithTheLastOfBoth) {
  FakeNics nics;
  registry_.SetNicRegistrar(&nics);
  const int fds_before = OpenDescriptors();
  const std::string token = DmaBufToken();
  const auto one = Register(OnGpu(token), "one");
  const auto other = Register(OnGpu(token), "other");
  ASSERT_TRUE(one && other) << one.error().message;
  EXPECT_EQ(mapper_.maps(), 1);
  ASSERT_EQ(nics.seen.size(), 2u);
  EXPECT_EQ(nics.seen[0].fd, nics.seen[1].fd);
  EXPECT_EQ(nics.seen[0].offset, 512u);
  EXPECT_EQ(nics.seen[0].size, kMiB + kPage);
  nics.seen.clear();
  EXPECT_EQ((*one)[0]->WhyNotOnNics(), "");
  const int with_both = OpenDescriptors();
  ASSERT_TRUE(workloads_.ReleaseFds(owner_.name, owner_.generation, {token}));
  EXPECT_EQ(OpenDescriptors(), with_both) << "a suspended buffer comes back with it";
  EXPECT_EQ(workloads_.Get(owner_.name)->fds_held, 1u) << "it counts until it is closed";
  ASSERT_TRUE(registry_.Suspend((*one)[0]->description().id, Later()));
  ASSERT_TRUE(registry_.Suspend((*other)[0]->description().id, Later()));
  EXPECT_EQ(mapper_.live(), 0u);
  ASSERT_TRUE(registry_.Resume((*one)[0]->description().id));
  ASSERT_EQ(nics.seen.size(), 1u);
  EXPECT_NE(nics.seen[0].fd, nullptr);
  nics.seen.clear();
  ASSERT_TRUE(registry_.Remove((*one)[0]->description().id, Later()));
  EXPECT_GT(OpenDescriptors(), fds_before);
  ASSERT_TRUE(registry_.Remove((*other)[0]->description().id, Later()));
  EXPECT_EQ(OpenDescriptors(), fds_before);
  EXPECT_EQ(workloads_.Get(owner_.name)->fds_held, 0u);
}

TEST_F(DmaBufTest, WhatIsSaidOfOneIsChecked) {
  struct Case {
    std::function<void(wire::AllocationSpec*)> change;
    ErrorCode code;
    const char* field;
  };
  const WorkloadInfo stranger = Enlist("stranger");
  const std::string strangers = HandOver(stranger, MakeMemfd(kMiB + kPage));
  int ends[2] = {};
  ASSERT_EQ(::pipe(ends), 0);
  const UniqueFd unused(ends[1]);
  const std::string no_memory = HandOver(owner_, UniqueFd(ends[0]));
  const std::string too_short = Memory(kMiB);
  const Case cases[] = {
      {[](auto* spec) { spec->dma_buf->offset = kPage + 1; }, ErrorCode::kOutOfRange,
       "/dma_buf/offset"},
      {[](auto* spec) { spec->dma_buf->offset = ~uint64_t{0}; }, ErrorCode::kOutOfRange,
       "/dma_buf/offset"},
      {[](auto* spec) { spec->size = kMiB + kPage - 511; }, ErrorCode::kOutOfRange,
       "/dma_buf/offset"},
      {[](auto* spec) { spec->dma_buf->size = kMiB + 513; }, ErrorCode::kInvalidArgument,
       "/dma_buf/size"},
      {[](auto* spec) { spec->dma_buf->size = 0; }, ErrorCode::kInvalidArgument, "/dma_buf/size"},
      {[](auto* spec) { spec->dma_buf->size += kPage; }, ErrorCode::kFdTooShort, "/dma_buf/size"},
      {[](auto* spec) { spec->dma_buf->size = uint64_t{1} << 63; }, ErrorCode::kFdTooShort,
       "/dma_buf/size"},
      {[&](auto* spec) { spec->dma_buf->fd_token = too_short; }, ErrorCode::kFdTooShort,
       "/dma_buf/size"},
      {[&](auto* spec) { spec->dma_buf->fd_token = no_memory; }, ErrorCode::kNotExportable,
       "/dma_buf/fd_token"},
      {[&](auto* spec) { spec->dma_buf->fd_token = strangers; }, ErrorCode::kNotFound,
       "/dma_buf/fd_token"},
      {[](auto* spec) { spec->dma_buf->fd_token = "none"; }, ErrorCode::kNotFound,
       "/dma_buf/fd_token"},
      {[](auto* spec) { spec->no_dma_buf_because = "why"; }, ErrorCode::kInvalidArgument,
       "/no_dma_buf_because"},
      {[&](auto* spec) {
         *spec = {wire::MemoryKind::kHost, too_short, kMiB};
         spec->no_dma_buf_because = "why";
       },
       ErrorCode::kInvalidArgument, "/kind"},
  };
  const std::string token = DmaBufToken();
  const int fds_before = OpenDescriptors();
  for (const Case& one : cases) {
    wire::AllocationSpec spec = OnGpu(token);
    one.change(&spec);
    const auto refused = Register(spec);
    ASSERT_TRUE(FailsWith(refused, one.code)) << one.field;
    EXPECT_EQ(refused.error().field, std::string("/allocations/0") + one.field);
  }
  EXPECT_EQ(mapper_.maps(), 0);
  EXPECT_EQ(OpenDescriptors(), fds_before);
  EXPECT_TRUE(Register(OnGpu(token)));
}

TEST_F(DmaBufTest, WithoutOneABufferSaysWhatItsOwnerSaid) {
  FakeNics nics;
  registry_.SetNicRegistrar(&nics);
  wire::AllocationSpec spec = OnGpu("");
  spec.no_dma_buf_because = "its driver is too old";
  const auto registered = Register(spec);
  ASSERT_TRUE(registered) << registered.error().message;
  Buffer& buffer = *registered->front();
  EXPECT_EQ(buffer.WhyNotOnNics(), "no dma-buf: its driver is too old");
  ASSERT_TRUE(registry_.Suspend(buffer.description().id, Later()));
  EXPECT_EQ(buffer.WhyNotOnNics(), "");
  ASSERT_TRUE(registry_.Resume(buffer.description().id));
  EXPECT_EQ(buffer.WhyNotOnNics(), "no dma-buf: its driver is too old");
}

// As clients do that know nothing of dma-bufs.
TEST_F(DmaBufTest, ARegistrationMaySayNothingOfIt) {
  ASSERT_TRUE(Register(OnGpu("")));
  EXPECT_THAT(registry_.ByName(owner_.name, "k").value()->WhyNotOnNics(),
              HasSubstr("uses no RDMA device"));
}

}  // namespace
}  // namespace gantry::registry
