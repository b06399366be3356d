// A worker that is to look for work for long keeps its GPU awake, and the links to the others.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/sidecar/worker/gpu_loop_fixture.h"

namespace gantry::worker {
namespace {

constexpr milliseconds kSomeNudges{20};
constexpr size_t kNone = SIZE_MAX;

// Calls of the fake driver that fail for as long as this is.
class Failing {
 public:
  explicit Failing(const std::string& calls) {
    const char* folder = std::getenv("GANTRY_FAKE_GPU_DIR");
    if (folder == nullptr) return;
    file_ = std::string(folder) + "/failures";
    std::ofstream(file_) << calls;
  }
  ~Failing() { std::filesystem::remove(file_); }

 private:
  std::string file_;
};
constexpr const char* kAllocations = "cuMemAlloc=2,hipMalloc=2";
constexpr const char* kCopies = "cuMemcpyAsync=999,hipMemcpyAsync=999";
constexpr const char* kPieces = "cuMemCreate=2";  // AMD GPUs make none on others anyway

class GpuNudgeTest : public GpuLoopTest {
 protected:
  explicit GpuNudgeTest(nanoseconds spin = milliseconds(60'000)) : GpuLoopTest(spin) {}

  void BeforeRun() override {
    ASSERT_TRUE(loop_.UseGpu(gpus_));
    if (loop_.nudges() != nullptr) Fill(*loop_.nudges());
  }
  // What may be read has other bytes in each of its parts.
  void Fill(const GpuNudges& nudges) {
    for (const auto& other : nudges.others()) {
      ASSERT_EQ(other->range().size, kSize);
      ASSERT_TRUE(context_->CopyFromHost(other->range().base, image_.data(), kSize));
    }
    const gpu::DeviceAddress own = nudges.own().range().base;
    const std::vector<uint8_t> nothing(GpuNudges::kBytes);
    ASSERT_TRUE(context_->CopyFromHost(own, nothing.data(), nothing.size()));
    ASSERT_TRUE(context_->CopyFromHost(own + GpuNudges::kBytes, image_.data(), GpuNudges::kBytes));
  }
  // Which part of the image was read last, or kNone.
  size_t PartRead(GpuNudges& nudges) {
    for (auto done = nudges.IsDone(); !done || !*done; done = nudges.IsDone()) {
      if (!done) return kNone;
      std::this_thread::yield();
    }
    std::vector<uint8_t> bytes(GpuNudges::kBytes);
    EXPECT_TRUE(context_->CopyToHost(bytes.data(), nudges.own().range().base, bytes.size()));
    for (size_t part = 0; part < kParts; ++part) {
      const auto first = image_.begin() + static_cast<std::ptrdiff_t>(part * bytes.size());
      if (std::equal(bytes.begin(), bytes.end(), first)) return part;
    }
    return kNone;
  }
  void ExpectThatItCopies() {
    Post(1, {Plain(3, 7, 5'000)});
    EXPECT_TRUE(Await().ok);
    ExpectMoved({{3, 7}}, 5'000);
  }
  // Of a real driver none can be had.
  bool HasFailures() const { return context_->device().uuid.find("fafafafa") != std::string::npos; }
  static void Pause() { std::this_thread::sleep_for(kSomeNudges); }

  static constexpr size_t kParts = kSize / GpuNudges::kBytes;
};

TEST_P(GpuNudgeTest, WhoLooksForWorkForLongReads) {
  Pause();
  ExpectThatItCopies();
  Pause();
  End();
  ASSERT_NE(loop_.nudges(), nullptr);
  EXPECT_NE(PartRead(*loop_.nudges()), kNone);
}

TEST_P(GpuNudgeTest, EachReadsTheNextPartOfTheNextOther) {
  const auto nudges = *GpuNudges::Create(gpus_);
  Fill(*nudges);
  const size_t others = nudges->others().size();
  for (size_t i = 0; i <= kParts * std::max<size_t>(others, 1); ++i) {
    ASSERT_TRUE(nudges->Nudge());
    const size_t expected = others == 0 ? 0 : i / others % kParts;
    ASSERT_EQ(PartRead(*nudges), expected) << i;
  }
}

TEST_P(GpuNudgeTest, WithoutMemoryOfOthersItReadsItsOwn) {
  if (!HasFailures()) GTEST_SKIP() << "on the fake driver alone";
  const Failing failing(kPieces);
  const auto nudges = *GpuNudges::Create(gpus_);
  EXPECT_TRUE(nudges->others().empty());
  Fill(*nudges);
  ASSERT_TRUE(nudges->Nudge());
  EXPECT_EQ(PartRead(*nudges), 0);
}

TEST_P(GpuNudgeTest, AfterAnErrorItReadsNoMoreAndCopies) {
  if (!HasFailures()) GTEST_SKIP() << "on the fake driver alone";
  {
    const Failing failing(kCopies);
    Pause();
  }
  ExpectThatItCopies();
  End();
  EXPECT_EQ(loop_.nudges(), nullptr);
}

INSTANTIATE_BY_EITHER_MEANS(GpuNudgeTest);

class GpuNudgeShortOfMemoryTest : public GpuNudgeTest {
 protected:
  void BeforeRun() override {
    const Failing failing(kAllocations);
    GpuNudgeTest::BeforeRun();
  }
};

TEST_P(GpuNudgeShortOfMemoryTest, ItCopiesAllTheSame) {
  if (!HasFailures()) GTEST_SKIP() << "on the fake driver alone";
  EXPECT_EQ(loop_.nudges(), nullptr);
  Pause();
  ExpectThatItCopies();
}

INSTANTIATE_BY_EITHER_MEANS(GpuNudgeShortOfMemoryTest);

class GpuShortSpinTest : public GpuNudgeTest {
 protected:
  GpuShortSpinTest() : GpuNudgeTest(microseconds(200)) {}
};

TEST_P(GpuShortSpinTest, WhoSleepsSoonTakesNoMemoryForThat) {
  EXPECT_EQ(loop_.nudges(), nullptr);
  ExpectThatItCopies();
}

INSTANTIATE_BY_EITHER_MEANS(GpuShortSpinTest);

}  // namespace
}  // namespace gantry::worker
