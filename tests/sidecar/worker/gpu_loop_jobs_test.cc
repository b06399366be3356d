// Jobs of all kinds between GPUs, while mappings come and go.
#include <algorithm>
#include <future>
#include <random>

#include "tests/sidecar/worker/gpu_loop_fixture.h"

namespace gantry::worker {
namespace {

class GpuLoopJobs : public GpuLoopTest {
 protected:
  static constexpr uint64_t kJobs = 16;
  static constexpr uint64_t kSlice = kSize / kJobs;  // of the destination, for each job of a round

  uint64_t Below(uint64_t limit) { return random_() % limit; }
  // Blocks anywhere, or at strides, into [*at, end) of the destination, and what they make of it.
  CopySegment RandomSegment(uint64_t* at, uint64_t end, bool moves) {
    CopySegment segment = Plain(0, 0, 1 + Below(700));
    segment.source = sources_[Below(sources_.size())];
    segment.means = Below(4) != 0 ? GetParam() : GpuMeans::kCopyEngine;
    const uint64_t gap = Below(40), step = segment.length + gap;
    const uint64_t count = std::min(1 + Below(30), (end - *at) / step);
    if (count == 0) return {};
    segment.count = static_cast<uint32_t>(count);
    const uint64_t source_stride = Below(900);
    const uint64_t source_start = Below(kSize - 30 * 900 - 1000);
    const bool listed = Below(2) != 0;
    if (listed) places_.emplace_back();
    for (uint64_t i = 0; i < count; ++i) {
      const uint64_t from =
          listed ? Below(kSize - segment.length) : source_start + i * source_stride;
      const uint64_t to = *at + i * step;
      if (listed) places_.back().push_back({from, to});
      if (!moves) continue;
      std::copy_n(image_.begin() + static_cast<std::ptrdiff_t>(from), segment.length,
                  expected_.begin() + static_cast<std::ptrdiff_t>(to));
    }
    segment.source_offset = source_start;
    segment.source_stride = source_stride;
    segment.destination_offset = *at;
    segment.destination_stride = step;
    if (listed) segment.places = places_.back();
    *at += count * step;
    return segment;
  }
  // The job's segments; `fails` when one of them is refused, behind which nothing moves.
  std::vector<CopySegment> RandomJob(uint64_t at, bool* fails) {
    std::vector<CopySegment> job;
    const uint64_t end = at + kSlice;
    if (Below(8) == 0) {
      CopySegment host = Plain(Below(1000), 32768 + Below(1000), 1 + Below(900));
      host.source = host.destination = kHost;
      job.push_back(host);
    }
    *fails = false;
    for (uint64_t left = 1 + Below(12); left > 0; --left) {
      const CopySegment segment = RandomSegment(&at, end, !*fails);
      if (segment.length == 0) break;
      job.push_back(segment);
      if (Below(60) != 0) continue;
      job.push_back(Plain(kSize, 0, 1));
      *fails = true;
    }
    return job;
  }
  void ReplaceASource() {
    memory::MappingId& id = sources_[Below(sources_.size())];
    ASSERT_TRUE(mappings_.Remove(id));
    ++id.generation;
    AddSource(id);
  }
  void AddSource(memory::MappingId id) {
    ASSERT_TRUE(context_->CopyFromHost(Add(id).base, image_.data(), kSize));
  }

  std::minstd_rand random_{7};
  std::vector<memory::MappingId> sources_;
  std::vector<uint8_t> expected_ = std::vector<uint8_t>(kSize);
  std::deque<std::vector<BlockPlaces>> places_;  // of the round's segments
};

TEST_P(GpuLoopJobs, OfAllKindsOverMappingsThatComeAndGo) {
  for (uint32_t i = 0; i < 20; ++i) {
    sources_.push_back({100 + i, 1});
    AddSource(sources_.back());
  }
  uint64_t tag = 0;
  for (int round = 0; round < 30; ++round) {
    std::vector<std::vector<CopySegment>> jobs(kJobs);
    std::array<bool, kJobs> fails;
    places_.clear();
    for (uint64_t job = 0; job < kJobs; ++job) jobs[job] = RandomJob(job * kSlice, &fails[job]);
    for (const auto& job : jobs) Post(tag++, job);
    Post(tag++, {OfHost()});
    AwaitTaken();
    for (int i = 0; i < 3; ++i) ReplaceASource();  // GPUs work on it, perhaps
    for (uint64_t job = 0; job < kJobs; ++job) {
      const Completion done = Await();
      ASSERT_EQ(done.tag, tag - 1 - kJobs + job);
      ASSERT_EQ(done.ok, !fails[job]) << static_cast<int>(done.code);
    }
    ASSERT_TRUE(Await().ok);
    ASSERT_TRUE(Destination() == expected_) << "round " << round;
  }
}

// The loop waits for room when the destination goes: nothing keeps the source then.
TEST_P(GpuLoopJobs, OneThatIsStaleWhenItIsHeldLeavesNothingHeld) {
  constexpr memory::MappingId kFrom = {500, 1}, kTo = {501, 1};
  AddSource(kFrom);
  AddSource(kTo);
  std::vector<CopySegment> slow;
  for (uint32_t i = 0; i < 62; ++i) {  // with the destination, no room for two more is left
    AddSource({10 + i, 1});
    slow.push_back(Plain(0, 0, kSize / 2));
    slow.back().source = {10 + i, 1};
  }
  CopySegment last = Plain(0, 0, 64);
  last.source = kFrom;
  last.destination = kTo;
  Post(1, slow);
  Post(2, {last});
  AwaitTaken();
  EXPECT_TRUE(mappings_.Remove(kTo));
  EXPECT_TRUE(Await().ok);
  Await();  // it was stale, or before the removal
  auto removed = std::async(std::launch::async, [&] { return mappings_.Remove(kFrom); });
  EXPECT_EQ(removed.wait_for(std::chrono::seconds(10)), std::future_status::ready);
  Post(3, {Plain(0, 0, 64)});  // would let go of it
  Await();
}

INSTANTIATE_BY_EITHER_MEANS(GpuLoopJobs);

}  // namespace
}  // namespace gantry::worker
