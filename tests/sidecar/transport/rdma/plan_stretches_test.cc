// Which memory region a transfer goes through: of its own buffers alone, whatever else is
// registered of the same allocation, and the same as long as it runs.
#include "sidecar/transport/rdma/plan_stretches.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "sidecar/transport/rdma/rdma_operation.h"
#include "sidecar/transport/rdma/verbs/rdma_registrar.h"
#include "tests/fakes/counting_mapper.h"
#include "tests/fakes/fake_verbs.h"
#include "tests/fakes/test_arena.h"

namespace gantry::transport {
namespace {

using View = std::shared_ptr<const memory::NicMemory>;

class PlanStretchesTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kPage = 4096;
  static constexpr uint64_t kArena = 2048 * kPage;
  static constexpr uint64_t kBlocks = 64;

  View Register(uint64_t offset, uint64_t length) {
    auto registered = registrar_.Register({{allocation_, offset, length}}, {true, true});
    EXPECT_TRUE(registered) << registered.error().message;
    return registered ? *std::move(registered) : nullptr;
  }
  std::shared_ptr<MovePlan> PlanOf(std::vector<View> own) const {
    auto plan = std::make_shared<MovePlan>();
    plan->operation = wire::Operation::kWrite;
    plan->local = {allocation_};
    plan->local_nic_memory = std::move(own);
    plan->remote = {{nullptr, std::make_shared<RdmaRemoteBuffer>(
                                  nullptr, std::vector<wire::RdmaChunk>{{kArena, 1 << 20, {1}}},
                                  DeviceSet{0})}};
    return plan;
  }
  static const MemoryRegionSet::Chunk& ChunkOf(const View& view) {
    return dynamic_cast<const MemoryRegionSet&>(*view).list()[0];
  }
  // How many bytes from there on are in the region that is found; 0: none.
  uint64_t Reach(const std::vector<View>& own, uint64_t offset) const {
    const auto plan = PlanOf(own);
    const PlanStretches stretches(*plan);
    const LocalStretch found = stretches.Local(0, offset);
    if (found.length == 0) return 0;
    const MemoryRegionSet::Chunk& chunk = stretches.region(found.region);
    EXPECT_EQ(found.address, base_ + offset);
    EXPECT_LE(chunk.address, found.address);
    EXPECT_LE(found.address + found.length, chunk.address + chunk.length);
    return found.length;
  }
  // Blocks of a page; each lies at another place there, so that each is a work request of its own.
  std::unique_ptr<RdmaOperation> Start(std::vector<View> own) const {
    auto plan = PlanOf(std::move(own));
    MoveSegment segment;
    segment.length = kPage;
    segment.count = kBlocks;
    segment.local_stride = 2 * kPage;
    segment.remote_stride = kPage;
    plan->segments.push_back(segment);
    plan->bytes = kBlocks * kPage;
    RdmaOperation::Setup setup;
    setup.plan = plan;
    setup.slice_bytes = 1 << 20;
    return std::make_unique<RdmaOperation>(setup);
  }

  const gantry::testing::TestArena arena_{kArena, gantry::testing::TestArena::Untouched()};
  gantry::testing::FakeFabric fabric_;
  gantry::testing::FakeVerbs host_{fabric_, {{.name = "first"}, {.name = "second"}}};
  const std::unique_ptr<RdmaDevices> devices_ = *RdmaDevices::Open({}, host_);
  CountingMapper mapper_;
  const std::shared_ptr<const memory::MappedAllocation> allocation_ =
      *memory::MappedAllocation::Create(mapper_, arena_.source());
  RdmaRegistrar registrar_{*devices_};
  const uint64_t base_ = ChunkOf(Register(0, 1)).address;
};

TEST_F(PlanStretchesTest, AnotherBufferOfTheSameAllocationIsNoneOfIts) {
  const View around = Register(0, kArena);
  const View own = Register(4 * kPage, 8 * kPage);
  const View equal = Register(4 * kPage, 8 * kPage);
  for (const auto& [mine, offset] : {std::pair{own, 5 * kPage}, std::pair{equal, 5 * kPage}}) {
    const auto plan = PlanOf({mine});
    const PlanStretches stretches(*plan);
    const LocalStretch found = stretches.Local(0, offset);
    EXPECT_EQ(found.length, 7 * kPage);
    EXPECT_EQ(&stretches.region(found.region), &ChunkOf(mine));
    EXPECT_EQ(stretches.Local(0, 4 * kPage - 1).length, 0u);
    EXPECT_EQ(stretches.Local(0, 12 * kPage).length, 0u);
  }
  EXPECT_EQ(Reach({}, 5 * kPage), 0u);
}

TEST_F(PlanStretchesTest, AnotherBufferGoesWhileATransferRuns) {
  View around = Register(0, kArena);
  const View own = Register(0, 2 * kBlocks * kPage);
  const auto operation = Start({own});
  around.reset();
  EXPECT_EQ(registrar_.chunks(0), 1u);
  EXPECT_EQ(host_.live().regions, 2) << "on each device one";
}

TEST_F(PlanStretchesTest, ItsOwnStaysAsLongAsTheTransfer) {
  View own = Register(0, kArena);
  auto operation = Start({own});
  own.reset();
  EXPECT_EQ(host_.live().regions, 2);
  uint64_t bytes = 0;
  while (operation->has_more()) {
    const NumberedWork work = operation->Take(Clock::now());
    bytes += work.work.length;
    operation->Moved(work);
  }
  EXPECT_EQ(bytes, kBlocks * kPage);
  EXPECT_TRUE(operation->Update());
  EXPECT_TRUE(operation->UnfinishedItems().empty());
  operation.reset();
  EXPECT_EQ(host_.live().regions, 0);
  EXPECT_EQ(registrar_.chunks(0), 0u);
}

TEST_F(PlanStretchesTest, OverlappingEqualAndNestedBuffersOfOnePlan) {
  const View left = Register(0, 8 * kPage);
  const View right = Register(4 * kPage, 8 * kPage);
  const View equal = Register(0, 8 * kPage);
  const View nested = Register(kPage, kPage);
  const std::vector<View> own = {nested, right, left, equal, left};
  EXPECT_EQ(Reach(own, 0), 8 * kPage);
  EXPECT_EQ(Reach(own, kPage + 1), 7 * kPage - 1);
  EXPECT_EQ(Reach(own, 8 * kPage - 1), 1u);
  EXPECT_EQ(Reach(own, 8 * kPage), 4 * kPage);
  EXPECT_EQ(Reach(own, 12 * kPage - 1), 1u);
  EXPECT_EQ(Reach(own, 12 * kPage), 0u);
}

TEST_F(PlanStretchesTest, RandomBuffersAsAPlainListHasThem) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 50; ++round) {
    std::vector<std::pair<uint64_t, uint64_t>> ranges;
    std::vector<View> own;
    const uint64_t count = 1 + random() % 20;
    for (uint64_t i = 0; i < count; ++i) {
      const uint64_t offset = random() % (kArena / 2);
      const uint64_t length = 1 + random() % (random() % 4 == 0 ? kArena / 2 : kPage);
      ranges.emplace_back(offset, length);
      own.push_back(Register(offset, length));
    }
    for (int i = 0; i < 100; ++i) {
      const auto& [offset, length] = ranges[random() % ranges.size()];
      const uint64_t at = i % 2 == 0 ? random() % kArena : offset + length - random() % 2;
      const bool covered = std::any_of(ranges.begin(), ranges.end(), [at](const auto& each) {
        return at >= each.first && at - each.first < each.second;
      });
      ASSERT_EQ(Reach(own, at) != 0, covered) << at;
    }
  }
}

TEST_F(PlanStretchesTest, BuffersComeAndGoOnManyThreads) {
  std::vector<std::jthread> threads;
  for (uint64_t i = 0; i < 3; ++i) {
    threads.emplace_back([this, i] {
      for (int round = 0; round < 200; ++round) {
        const View view = Register(i * kPage, 8 * kPage);
        EXPECT_EQ(Reach({view}, i * kPage), 8 * kPage);
      }
    });
  }
  threads.clear();
  EXPECT_EQ(registrar_.chunks(0), 0u);
  EXPECT_EQ(host_.live().regions, 0);
}

}  // namespace
}  // namespace gantry::transport
