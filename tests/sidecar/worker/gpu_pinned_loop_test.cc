// What a worker copies between memory of a GPU and host memory that the GPU's driver knows: the
// sidecar's staging memory.
#include <algorithm>

#include "sidecar/memory/pinned_memory.h"
#include "tests/sidecar/worker/gpu_loop_fixture.h"

namespace gantry::worker {
namespace {

constexpr memory::MappingId kStage = {7, 9};
constexpr uint64_t kStageBytes = 4 << 20;

class GpuPinnedLoopTest : public GpuLoopTest {
 protected:
  void SetUp() override {
    GpuLoopTest::SetUp();
    AddStage(kStage);
  }
  void AddStage(memory::MappingId id) {
    auto mapping = memory::HostMapping::Create(stage_.source().fd->get(), kStageBytes, true);
    ASSERT_TRUE(mapping);
    auto pinned = memory::PinForGpu(*gpus_.context(), *mapping);
    ASSERT_TRUE(pinned) << pinned.error().message;
    ASSERT_TRUE(mappings_.Add(id, std::move(*mapping), *std::move(pinned)));
  }

  testing::TestArena stage_{kStageBytes, 0};
};

TEST_P(GpuPinnedLoopTest, BytesGoToTheStageAndBackAndTheirNeighboursStay) {
  CopySegment out = Plain(4097, 1'000'001, 70'001);
  out.destination = kStage;
  Post(1, {out});
  EXPECT_TRUE(Await().ok);
  std::vector<uint8_t> expected(kStageBytes);
  std::copy_n(image_.begin() + 4097, 70'001, expected.begin() + 1'000'001);
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), stage_.data()));
  CopySegment back = Plain(1'000'004, 77, 69'998);
  back.source = kStage;
  Post(2, {back});
  EXPECT_TRUE(Await().ok);
  std::vector<uint8_t> on_gpu(kSize);
  std::copy_n(image_.begin() + 4100, 69'998, on_gpu.begin() + 77);
  EXPECT_TRUE(Destination() == on_gpu);
}

// The last byte, and not the one behind it.
TEST_P(GpuPinnedLoopTest, NoCopyLeavesTheStage) {
  CopySegment last = Plain(0, kStageBytes - 64, 64);
  last.destination = kStage;
  CopySegment beyond = Plain(0, kStageBytes - 63, 64);
  beyond.destination = kStage;
  Post(1, {last});
  EXPECT_TRUE(Await().ok);
  Post(2, {beyond});
  const Completion refused = Await();
  EXPECT_FALSE(refused.ok);
  EXPECT_EQ(refused.code, ErrorCode::kOutOfRange);
  EXPECT_TRUE(std::equal(image_.begin(), image_.begin() + 64, stage_.data() + kStageBytes - 64));
}

// Registered twice at a time the driver would refuse it: it goes with its mapping.
TEST_P(GpuPinnedLoopTest, TheDriverForgetsItBeforeItIsUnmapped) {
  for (uint32_t turn = 0; turn < 20; ++turn) {
    const memory::MappingId id = {20, turn + 1};
    AddStage(id);
    CopySegment out = Plain(0, 0, 4096);
    out.destination = id;
    Post(turn, {out});
    EXPECT_TRUE(Await().ok);
    ASSERT_TRUE(mappings_.Remove(id));
  }
}

INSTANTIATE_BY_EITHER_MEANS(GpuPinnedLoopTest);

// A driver that registers what it is given, and says something else of it.
class OddContext final : public gpu::GpuContext {
 public:
  explicit OddContext(gpu::AddressRange range) : range_(range) {}
  const gpu::DeviceInfo& device() const override { return info_; }
  Result<gpu::MemoryAmount> Memory() override { return gpu::MemoryAmount{}; }
  Result<std::unique_ptr<gpu::GpuMemory>> Allocate(uint64_t) override { return None(); }
  Result<std::unique_ptr<gpu::GpuMemory>> OpenIpc(const gpu::IpcHandle&) override { return None(); }
  Result<std::unique_ptr<gpu::GpuMemory>> MapDmaBuf(const gpu::DmaBufPart&) override {
    return None();
  }
  Result<std::unique_ptr<gpu::GpuMemory>> MapPieces(std::span<const gpu::PieceFd>) override {
    return None();
  }
  Result<std::unique_ptr<gpu::GpuMemory>> AllocatePieces(uint64_t, uint64_t) override {
    return None();
  }
  Result<std::unique_ptr<gpu::GpuMemory>> AllocateOn(int, uint64_t) override { return None(); }
  Result<std::unique_ptr<gpu::GpuHostMemory>> RegisterHost(void*, uint64_t) override {
    return std::make_unique<Registered>(range_);
  }
  Status EnablePeerAccess(gpu::GpuContext&) override { return {}; }
  Status TrimForCopies() override { return {}; }
  Status LoadKernels() override { return {}; }
  Result<std::unique_ptr<gpu::GpuStream>> NewStream() override { return NoStream(); }
  Result<std::unique_ptr<gpu::GpuEvent>> NewEvent() override {
    return Fail(ErrorCode::kPathUnavailable, "none");
  }
  Status CopyFromHost(gpu::DeviceAddress, const void*, uint64_t) override { return {}; }
  Status CopyToHost(void*, gpu::DeviceAddress, uint64_t) override { return {}; }

 private:
  struct Registered final : gpu::GpuHostMemory {
    explicit Registered(gpu::AddressRange range_in) : where(range_in) {}
    gpu::AddressRange range() const override { return where; }
    Status Unregister() override { return {}; }
    const gpu::AddressRange where;
  };
  static Result<std::unique_ptr<gpu::GpuMemory>> None() {
    return Fail(ErrorCode::kPathUnavailable, "none");
  }
  static Result<std::unique_ptr<gpu::GpuStream>> NoStream() {
    return Fail(ErrorCode::kPathUnavailable, "none");
  }

  const gpu::AddressRange range_;
  gpu::DeviceInfo info_;
};

TEST(PinForGpu, RefusesAnAddressThatIsNullAndLessThanItAskedFor) {
  const testing::TestArena arena(65536);
  const auto mapping = memory::HostMapping::Create(arena.source().fd->get(), 65536, true);
  ASSERT_TRUE(mapping);
  OddContext null({gpu::DeviceAddress{0}, 65536});
  OddContext shorter({gpu::DeviceAddress{4096}, 65535});
  OddContext right({gpu::DeviceAddress{4096}, 65536});
  EXPECT_EQ(memory::PinForGpu(null, *mapping).error().code, ErrorCode::kDeviceError);
  EXPECT_EQ(memory::PinForGpu(shorter, *mapping).error().code, ErrorCode::kDeviceError);
  EXPECT_TRUE(memory::PinForGpu(right, *mapping));
}

}  // namespace
}  // namespace gantry::worker
