// A worker's loop between memory of GPUs, over the fake driver or a real one, on a thread of this
// process, with the pool's end of its ring. One thread.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "lib/gpu/gpu_drivers.h"
#include "sidecar/worker/process/worker_loop.h"
#include "tests/contracts/gpu_allocations.h"
#include "tests/fakes/test_arena.h"
#include "tests/sidecar/worker/await_completion.h"

namespace gantry::worker {

inline constexpr uint64_t kSize = testing::GpuAllocations::kPieceBytes;
inline constexpr memory::MappingId kSource = {0, 1};
inline constexpr memory::MappingId kDestination = {1, 2};
inline constexpr memory::MappingId kHost = {2, 3};

class GpuLoopTest : public ::testing::TestWithParam<GpuMeans> {
 protected:
  explicit GpuLoopTest(nanoseconds spin = microseconds(20)) : loop_(&worker_, &mappings_, spin) {}
  virtual void BeforeRun() {}
  void SetUp() override {
    ASSERT_TRUE(gpus_.Open(/*index=*/0, memory::GpuDevices::kAutomatic));
    driver_ = *gpu::LoadGpuDriver();
    context_ = *driver_->OpenContext(0);
    allocations_ = *testing::GpuAllocations::On(*context_);
    source_ = Add(kSource);
    destination_ = Add(kDestination);
    auto host = memory::HostMapping::Create(host_.source().fd->get(), host_.size(), true);
    ASSERT_TRUE(host && mappings_.Add(kHost, std::move(*host)));
    for (size_t i = 0; i < kSize; ++i) image_.push_back(static_cast<uint8_t>(i * 7 + i / 251));
    ASSERT_TRUE(context_->CopyFromHost(source_.base, image_.data(), kSize));
    BeforeRun();
    thread_ = std::thread([this] { outcome_ = loop_.Run(); });
  }
  void TearDown() override { End(); }

  // Returns when the loop has.
  void End() {
    if (!thread_.joinable()) return;
    loop_.Stop();
    thread_.join();
    EXPECT_TRUE(outcome_) << outcome_.error().message;
  }

  // Memory of this process, mapped by its descriptor as if it were another's.
  gpu::AddressRange Add(memory::MappingId id) {
    const gpu::AddressRange range = *allocations_->MakeVirtual({kSize});
    const auto fd = driver_->ExportPiece(range.base);
    EXPECT_TRUE(fd);
    wire::GpuFacts facts;
    facts.form = wire::GpuExport::kPiece;
    facts.device_uuid = context_->device().uuid;
    auto mapping = memory::GpuMapping::Create(gpus_, facts, fd->get(), kSize);
    EXPECT_TRUE(mapping && mappings_.Add(id, std::move(*mapping), true));
    return range;
  }

  CopySegment Plain(uint64_t from, uint64_t to, uint64_t length) const {
    CopySegment segment;
    segment.source = kSource;
    segment.destination = kDestination;
    segment.source_offset = from;
    segment.destination_offset = to;
    segment.length = length;
    segment.means = GetParam();
    return segment;
  }
  // Within the host's memory: once it was taken, what was posted before it has been looked up, too.
  CopySegment OfHost() const {
    CopySegment segment;
    segment.source = segment.destination = kHost;
    segment.destination_offset = 32768;
    segment.length = 64;
    return segment;
  }
  Completion Await() { return AwaitCompletion(&pool_); }
  void Post(uint64_t tag, const std::vector<CopySegment>& segments) {
    ASSERT_TRUE(pool_.Submit(tag, segments));
  }
  // Until the loop has taken all that was posted from its ring.
  void AwaitTaken() const {
    while (memory_->submission_tail.value.load() != memory_->submission_head.value.load()) {
      std::this_thread::yield();
    }
  }
  std::vector<uint8_t> Destination() {
    std::vector<uint8_t> bytes(kSize);
    EXPECT_TRUE(context_->CopyToHost(bytes.data(), destination_.base, kSize));
    return bytes;
  }
  // What the destination holds after these copies into zeros.
  void ExpectMoved(const std::vector<BlockPlaces>& places, uint64_t length) {
    std::vector<uint8_t> expected(kSize);
    for (const BlockPlaces& place : places) {
      std::copy_n(image_.begin() + static_cast<std::ptrdiff_t>(place.source), length,
                  expected.begin() + static_cast<std::ptrdiff_t>(place.destination));
    }
    EXPECT_TRUE(Destination() == expected);
  }

  std::unique_ptr<gpu::GpuDriver> driver_;
  std::unique_ptr<gpu::GpuContext> context_;
  std::unique_ptr<testing::GpuAllocations> allocations_;
  gpu::AddressRange source_, destination_;
  std::vector<uint8_t> image_;
  testing::TestArena host_{65536};
  memory::GpuDevices gpus_;
  MappingTable mappings_;
  std::unique_ptr<RingLayout> memory_ = std::make_unique<RingLayout>();
  Doorbell doorbell_ = {};
  PoolRingEnd pool_{InitializeRing(memory_.get())};
  WorkerRingEnd worker_{memory_.get(), &doorbell_};
  WorkerLoop loop_;
  Status outcome_;
  std::thread thread_;
};

// The tests of a fixture, by either means.
#define INSTANTIATE_BY_EITHER_MEANS(fixture)                                                    \
  INSTANTIATE_TEST_SUITE_P(Means, fixture,                                                      \
                           ::testing::Values(GpuMeans::kCopyEngine, GpuMeans::kKernel),         \
                           [](const auto& means) {                                              \
                             return means.param == GpuMeans::kKernel ? "Kernel" : "CopyEngine"; \
                           })

}  // namespace gantry::worker
