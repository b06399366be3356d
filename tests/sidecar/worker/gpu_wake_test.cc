// A worker that is roused after a pause wakes its GPU up, and the way to the other one whose memory
// it copied last.
#include <algorithm>
#include <array>

#include "sidecar/worker/futex_wait.h"
#include "tests/sidecar/worker/gpu_loop_fixture.h"

namespace gantry::worker {
namespace {

constexpr memory::MappingId kFar = {5, 11};
constexpr int kTries = 200;  // a machine with much to do may let both come at once

class GpuWakeTest : public GpuLoopTest {
 protected:
  void SetUp() override {
    GpuLoopTest::SetUp();
    if (gpus_.uuids().size() < 2 || !gpus_.Reaches(gpus_.uuids()[1])) {
      GTEST_SKIP() << "no two GPUs that reach each other's memory";
    }
    far_context_ = *driver_->OpenContext(1);
    far_allocations_ = *testing::GpuAllocations::On(*far_context_);
    far_ = *far_allocations_->MakeVirtual({kSize});
    ASSERT_TRUE(far_context_->CopyFromHost(far_.base, image_.data() + 1, kSize - 1));
  }
  memory::GpuMapping MapFar() {
    wire::GpuFacts facts;
    facts.form = wire::GpuExport::kPiece;
    facts.device_uuid = far_context_->device().uuid;
    const auto fd = driver_->ExportPiece(far_.base);
    return *memory::GpuMapping::Create(gpus_, facts, fd->get(), kSize);
  }
  // Until the worker sleeps, and its GPU has had nothing to do for long.
  static void Pause() { std::this_thread::sleep_for(milliseconds(5)); }
  void Rouse() {
    ++doorbell_.roused.value;
    FutexWake(memory_->worker_sleeps.value, 1);
    std::this_thread::sleep_for(milliseconds(5));
  }
  void MoveFrom(memory::MappingId id) {
    CopySegment segment = Plain(3, 7, 5'000);
    segment.source = id;
    Post(1, {segment});
    EXPECT_TRUE(Await().ok);
  }
  bool IsNudgedWith(const uint8_t* expected) const {
    const std::byte* bytes = loop_.gpu_copier().nudged();
    return bytes != nullptr && std::equal(bytes, bytes + GpuCopier::kNudgeBytes,
                                          reinterpret_cast<const std::byte*>(expected));
  }
  bool IsNudgedFromFar() const { return IsNudgedWith(image_.data() + 1); }
  bool IsNudgedFromHost() const {
    static constexpr std::array<uint8_t, GpuCopier::kNudgeBytes> kZeros = {};
    return IsNudgedWith(kZeros.data());
  }

  std::unique_ptr<gpu::GpuContext> far_context_;
  std::unique_ptr<testing::GpuAllocations> far_allocations_;
  gpu::AddressRange far_;
};

TEST_P(GpuWakeTest, ItReadsFromTheOtherGpuWhenItIsRoused) {
  ASSERT_TRUE(mappings_.Add(kFar, MapFar(), true));
  MoveFrom(kFar);
  EXPECT_EQ(loop_.gpu_copier().nudged(), nullptr) << "nobody has roused it";
  for (int i = 0; i < kTries && !IsNudgedFromFar(); ++i) {
    Pause();
    Rouse();
    MoveFrom(kFar);
  }
  EXPECT_TRUE(IsNudgedFromFar());
}

// Nor has it to be waited for when that memory is unmapped.
TEST_P(GpuWakeTest, NothingIsReadOfMemoryThatIsNotMappedAnyMore) {
  ASSERT_TRUE(mappings_.Add(kFar, MapFar(), true));
  MoveFrom(kFar);
  Pause();
  Rouse();
  EXPECT_TRUE(mappings_.Remove(kFar));
  MoveFrom(kSource);
  for (int i = 0; i < kTries && !IsNudgedFromHost(); ++i) {
    Pause();
    Rouse();
    MoveFrom(kSource);
  }
  EXPECT_TRUE(IsNudgedFromHost());
}

INSTANTIATE_BY_EITHER_MEANS(GpuWakeTest);

}  // namespace
}  // namespace gantry::worker
