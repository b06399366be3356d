// Memory of GPUs as RDMA devices have it: by dma-bufs, at their own offsets, or not at all and why.
#include <gmock/gmock.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>

#include "sidecar/transport/rdma/verbs/dma_buf_ability.h"
#include "sidecar/transport/rdma/verbs/verbs_error.h"
#include "tests/sidecar/transport/rdma/region_set_fixture.h"

namespace gantry::transport {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::FakeCall;
using ::testing::HasSubstr;
using testing::TestArena;

constexpr uint64_t kLead = 512;  // of an allocation in its dma-buf
constexpr uint64_t kChunk = 16384;
constexpr uint64_t kDmaBufBytes = 4 * kChunk;
constexpr int kNotSupportedByKernel = 524;  // ENOTSUPP

size_t OpenFds() {
  namespace fs = std::filesystem;
  return static_cast<size_t>(
      std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator()));
}

class DmaBufRegionTest : public RegionSetFixture {
 protected:
  // Both take dma-bufs, or neither does.
  void Open(bool takes = true) {
    testing::FakeDeviceOptions first{.name = "first", .dmabuf = takes};
    testing::FakeDeviceOptions second{.name = "second", .dmabuf = takes};
    second.limits.region_bytes_max = kChunk;
    host_ = std::make_unique<testing::FakeVerbs>(
        fabric_, std::vector<testing::FakeDeviceOptions>{first, second});
    for (const char* name : {"first", "second"}) {
      opened_.push_back(*host_->Open(name, 1));
      abilities_.push_back(std::make_unique<DmaBufAbility>(*opened_.back()));
      devices_.push_back({opened_.back().get(), 0, abilities_.back().get()});
    }
  }
  Allocation OnGpu(uint64_t lead = kLead, const std::string& uuid = "GPU-1") {
    memory::AllocationSource source = arena_.gpu_source(lead, arena_.size() - lead);
    source.gpu.device_uuid = uuid;
    return *memory::MappedAllocation::Create(mapper_, std::move(source));
  }
  int calls(const char* device = "first") const {
    return host_->calls(device, FakeCall::kRegisterDmabuf);
  }
  // Each byte of a chunk is that of the arena from `at` on, and no byte beside it is reached.
  void ExpectReaches(const MemoryRegionSet::Chunk& chunk, uint64_t at) {
    const auto length = static_cast<uint32_t>(chunk.length);
    ASSERT_EQ(Reach(chunk, chunk.address, length), WorkStatus::kSuccess);
    EXPECT_EQ(std::memcmp(read_.data(), arena_.data() + at, length), 0);
    EXPECT_EQ(Reach(chunk, chunk.address + length - 1, 2), WorkStatus::kRemoteAccess);
    EXPECT_EQ(Reach(chunk, chunk.address - 1, 1), WorkStatus::kRemoteAccess);
    EXPECT_EQ(chunk.address % 4096, at % 4096);
  }

  const TestArena arena_{kMiB, 7};
  std::vector<std::unique_ptr<DmaBufAbility>> abilities_;
};

TEST_F(DmaBufRegionTest, EachChunkHasItsOwnPlaceInTheDmaBuf) {
  Open();
  constexpr uint64_t kOffset = 3 * 4096 + 33;  // in the allocation
  const auto set = Register({{OnGpu(), kOffset, kDmaBufBytes}});
  ASSERT_TRUE(set) << set.error().message;
  constexpr uint64_t kFirst = kChunk - (kLead + kOffset) % 4096;  // up to a page of the dma-buf
  EXPECT_THAT(RangesOf(**set), ElementsAre(ByteRange{0, kFirst}, ByteRange{kFirst, kChunk},
                                           ByteRange{kFirst + kChunk, kChunk},
                                           ByteRange{kFirst + 2 * kChunk, kChunk},
                                           ByteRange{kFirst + 3 * kChunk, kChunk - kFirst}));
  EXPECT_EQ(host_->live().regions, 10);
  EXPECT_EQ(host_->calls("first", FakeCall::kRegister), 0);
  for (const auto& chunk : (*set)->list()) ExpectReaches(chunk, kLead + kOffset + chunk.offset);
}

TEST_F(DmaBufRegionTest, EachPieceHasADmaBufOfItsOwn) {
  Open();
  const TestArena other(kMiB, 9);
  const Allocation second = *memory::MappedAllocation::Create(mapper_, other.gpu_source(100, 8192));
  const auto set = Register({{OnGpu(), 10, 20}, {second, 30, 40}, {OnGpu(0), 4096, 50}});
  ASSERT_TRUE(set) << set.error().message;
  ASSERT_THAT(RangesOf(**set), ElementsAre(ByteRange{0, 20}, ByteRange{20, 40}, ByteRange{60, 50}));
  ExpectReaches((*set)->list()[0], kLead + 10);
  ExpectReaches((*set)->list()[2], 4096);
  const auto& chunk = (*set)->list()[1];
  ASSERT_EQ(Reach(chunk, chunk.address, 40), WorkStatus::kSuccess);
  EXPECT_EQ(std::memcmp(read_.data(), other.data() + 130, 40), 0);
}

TEST_F(DmaBufRegionTest, AccessIsWhatWasGrantedAndNoMore) {
  Open();
  for (const bool remote_write : {false, true}) {
    const auto set = Register({{OnGpu(), 5, 100}}, {!remote_write, remote_write});
    ASSERT_TRUE(set);
    const auto& chunk = (*set)->list().front();
    const WorkStatus refused = WorkStatus::kRemoteAccess;
    EXPECT_EQ(Reach(chunk, chunk.address, 8), remote_write ? refused : WorkStatus::kSuccess);
    EXPECT_EQ(Reach(chunk, chunk.address, 8, WorkOperation::kWrite),
              remote_write ? WorkStatus::kSuccess : refused);
  }
}

TEST_F(DmaBufRegionTest, WhatIsReleasedIsGoneAtOnceAndWithItTheDescriptor) {
  Open();
  const size_t fds_before = OpenFds();
  memory::AllocationSource source = arena_.gpu_source(0, kMiB);
  source.dma_buf.fd = std::make_shared<const UniqueFd>(arena_.Fd());
  Allocation allocation = *memory::MappedAllocation::Create(mapper_, std::move(source));
  source = {};
  auto one = *Register({{allocation, 0, kDmaBufBytes}});
  auto other = *Register({{allocation, 100, kDmaBufBytes}});
  EXPECT_EQ(OpenFds(), fds_before + 1) << "one for all views";
  allocation.reset();
  const MemoryRegionSet::Chunk gone = one->list().front();
  one.reset();
  EXPECT_EQ(host_->live().regions, 2 * static_cast<int>(other->chunks()));
  EXPECT_EQ(Reach(gone, gone.address, 1), WorkStatus::kRemoteAccess);
  other.reset();
  EXPECT_EQ(host_->live().regions, 0);
  EXPECT_EQ(OpenFds(), fds_before);
  EXPECT_EQ(mapper_.live(), 0u);
}

TEST_F(DmaBufRegionTest, AFailureAtAnyChunkOnAnyDeviceLeavesNothing) {
  Open();
  const Allocation allocation = OnGpu(0);
  const size_t fds_before = OpenFds();
  for (const std::string device : {"first", "second"}) {
    for (int chunk = 1; chunk <= 4; ++chunk) {
      for (const int error_number : {EIO, ENOMEM, EINVAL}) {
        SCOPED_TRACE(device + " " + std::to_string(chunk) + " " + std::to_string(error_number));
        host_->FailCall(device, FakeCall::kRegisterDmabuf, chunk, error_number);
        const auto refused = Register({{allocation, 0, kDmaBufBytes}});
        ASSERT_FALSE(refused);
        EXPECT_EQ(refused.error().code, ErrorCode::kPathUnavailable) << "it has other ways";
        EXPECT_THAT(refused.error().message, AllOf(HasSubstr("chunk " + std::to_string(chunk) +
                                                             " of 4, on RDMA device " + device),
                                                   HasSubstr("the dma-buf of memory of GPU-1"),
                                                   HasSubstr(::strerror(error_number))));
        EXPECT_EQ(host_->live().regions, 0);
        EXPECT_EQ(OpenFds(), fds_before);
        EXPECT_TRUE(Register({{allocation, 0, kDmaBufBytes}})) << "it may be another time";
      }
    }
  }
}

TEST_F(DmaBufRegionTest, ADeviceThatTakesNoneIsAskedOnceAndHostMemoryIsRegistered) {
  Open(/*takes=*/false);
  EXPECT_EQ(calls(), 1) << "when it was opened";
  for (int i = 0; i < 3; ++i) {
    const auto refused = Register({{OnGpu(), 0, 100}});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::kPathUnavailable);
    EXPECT_THAT(refused.error().message, AllOf(HasSubstr("RDMA device first takes no dma-buf"),
                                               HasSubstr(::strerror(EOPNOTSUPP))));
  }
  EXPECT_EQ(calls(), 1);
  EXPECT_TRUE(Register({{Allocate(arena_), 0, 100}}));
  EXPECT_EQ(host_->live().regions, 0);
}

TEST_F(DmaBufRegionTest, APairOfGpuAndDeviceThatCannotIsTriedOnce) {
  Open();
  for (const int error_number : {EOPNOTSUPP, kNotSupportedByKernel}) {
    const std::string gpu = "GPU-of-" + std::to_string(error_number);
    EXPECT_EQ(VerbsError("a", "b", error_number).code, ErrorCode::kPathUnavailable);
    host_->FailCall("second", FakeCall::kRegisterDmabuf, 1, error_number);
    const auto first = Register({{OnGpu(0, gpu), 0, kDmaBufBytes}});
    const int tried = calls() + calls("second");
    const auto again = Register({{OnGpu(0, gpu), 0, kDmaBufBytes}});
    ASSERT_FALSE(first || again);
    EXPECT_THAT(first.error().message, HasSubstr(::strerror(EOPNOTSUPP)));
    EXPECT_THAT(again.error().message, HasSubstr(::strerror(EOPNOTSUPP)));
    EXPECT_EQ(calls() + calls("second"), tried);
    EXPECT_TRUE(abilities_[1]->Check()) << "for other GPUs";
    EXPECT_TRUE(Register({{OnGpu(0, "GPU-2"), 0, kDmaBufBytes}}));
  }
}

TEST_F(DmaBufRegionTest, WithoutADmaBufItIsSaidWhatItsOwnerSaid) {
  Open();
  memory::AllocationSource source = arena_.gpu_source(0, kMiB);
  source.dma_buf = {};
  source.dma_buf.why_none = "its driver is too old";
  const Allocation without = *memory::MappedAllocation::Create(mapper_, std::move(source));
  const auto refused = Register({{OnGpu(), 0, 100}, {without, 0, 100}});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kPathUnavailable);
  EXPECT_EQ(refused.error().message,
            "piece 2 of the buffer: it is memory of a GPU, and its owner handed over no dma-buf of "
            "it: its driver is too old");
  EXPECT_EQ(calls(), 1) << "nothing is tried";
}

}  // namespace
}  // namespace gantry::transport
