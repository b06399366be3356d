// Which memory region has a byte, with views that overlap, nest, come and go, and that a transfer's
// answers stay what they were meanwhile.
#include "sidecar/transport/rdma/rdma_registrar.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "sidecar/transport/rdma/rdma_operation.h"
#include "tests/fakes/counting_mapper.h"
#include "tests/fakes/fake_verbs.h"
#include "tests/fakes/test_arena.h"

namespace gantry::transport {
namespace {

using View = std::shared_ptr<const memory::NicMemory>;

class RdmaRegistrarTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kPage = 4096;
  static constexpr uint64_t kArena = 2048 * kPage;

  View Register(uint64_t offset, uint64_t length) {
    auto registered = registrar_->Register({{allocation_, offset, length}}, {true, true});
    EXPECT_TRUE(registered) << registered.error().message;
    return registered ? *std::move(registered) : nullptr;
  }
  // How many bytes from there on are in the region that is found, which is checked; 0: none.
  uint64_t Reach(uint64_t offset) const {
    const RdmaRegistrar::Found found = registrar_->Find(*allocation_, offset);
    if (found.set == nullptr) return 0;
    const MemoryRegionSet::Chunk& chunk = found.set->list()[found.chunk];
    const memory::NicPiece& piece = found.set->pieces()[chunk.piece];
    EXPECT_EQ(piece.offset + chunk.piece_offset + found.offset, offset);
    EXPECT_LT(found.offset, chunk.length);
    return chunk.length - found.offset;
  }

  const gantry::testing::TestArena arena_{kArena, gantry::testing::TestArena::Untouched()};
  gantry::testing::FakeFabric fabric_;
  gantry::testing::FakeVerbs host_{fabric_, {{.name = "first"}, {.name = "second"}}};
  const std::unique_ptr<RdmaDevices> devices_ = *RdmaDevices::Open({}, host_);
  CountingMapper mapper_;
  const std::shared_ptr<const memory::MappedAllocation> allocation_ =
      *memory::MappedAllocation::Create(mapper_, arena_.source());
  std::optional<RdmaRegistrar> registrar_{std::in_place, *devices_};
};

TEST_F(RdmaRegistrarTest, OverlappingEqualAndNestedViews) {
  EXPECT_TRUE(registrar_->SetsOf(*allocation_).empty());
  const View left = Register(0, 8 * kPage);
  const View right = Register(4 * kPage, 8 * kPage);
  View equal = Register(0, 8 * kPage);
  const View nested = Register(kPage, kPage);
  EXPECT_EQ(registrar_->chunks(0), 4u);
  EXPECT_EQ(Reach(0), 8 * kPage);
  EXPECT_EQ(Reach(kPage), 7 * kPage);
  EXPECT_EQ(Reach(kPage + 1), 7 * kPage - 1);
  EXPECT_EQ(Reach(4 * kPage - 1), 4 * kPage + 1);
  EXPECT_EQ(Reach(4 * kPage), 8 * kPage);
  EXPECT_EQ(Reach(12 * kPage - 1), 1u);
  EXPECT_EQ(Reach(12 * kPage), 0u);
  equal.reset();
  EXPECT_EQ(registrar_->chunks(0), 3u);
  EXPECT_EQ(Reach(0), 8 * kPage);
  EXPECT_EQ(registrar_->SetsOf(*allocation_), std::vector<DeviceSet>{(DeviceSet{0, 1})});
}

TEST_F(RdmaRegistrarTest, WhatIsRemovedIsFoundNoMore) {
  View view = Register(kPage, kPage);
  {
    const RdmaRegistrar::Found kept = registrar_->Find(*allocation_, kPage);
    view.reset();
    EXPECT_EQ(Reach(kPage), kPage) << "who moves from it keeps it";
  }
  EXPECT_EQ(Reach(kPage), 0u);
  EXPECT_TRUE(registrar_->SetsOf(*allocation_).empty());
  EXPECT_EQ(registrar_->chunks(0), 0u);
  EXPECT_EQ(host_.live().regions, 0);
}

TEST_F(RdmaRegistrarTest, AThousandSmallViewsHideNoByteOfABigOne) {
  const View big = Register(0, kArena);
  std::vector<View> small;
  for (uint64_t i = 0; i < 1000; ++i) small.push_back(Register(2 * i * kPage, kPage));
  for (uint64_t page = 0; page < kArena / kPage; ++page) {
    EXPECT_GT(Reach(page * kPage), 0u) << page;
    EXPECT_GT(Reach(page * kPage + kPage - 1), 0u) << page;
  }
  small.clear();
  EXPECT_EQ(Reach(0), kArena);
}

TEST_F(RdmaRegistrarTest, RandomViewsAsAPlainListHasThem) {
  std::mt19937_64 random(7);
  std::map<int, std::pair<uint64_t, uint64_t>> ranges;
  std::map<int, View> views;
  for (int step = 0; step < 400; ++step) {
    if (random() % 3 != 0 || views.empty()) {
      const uint64_t offset = random() % (kArena / 2);
      const uint64_t length = 1 + random() % (random() % 4 == 0 ? kArena / 2 : kPage);
      ranges[step] = {offset, length};
      views[step] = Register(offset, length);
    } else {
      auto gone = views.begin();
      std::advance(gone, static_cast<ptrdiff_t>(random() % views.size()));
      ranges.erase(gone->first);
      views.erase(gone);
    }
    for (int i = 0; i < 20; ++i) {
      const uint64_t at = random() % kArena;
      const bool covered = std::any_of(ranges.begin(), ranges.end(), [at](const auto& each) {
        return at >= each.second.first && at - each.second.first < each.second.second;
      });
      ASSERT_EQ(Reach(at) != 0, covered) << at;
    }
  }
}

TEST_F(RdmaRegistrarTest, ViewsComeAndGoWhileOthersAreLookedFor) {
  const View stays = Register(0, 4 * kPage);
  std::atomic<bool> stop = false;
  std::vector<std::jthread> threads;
  for (uint64_t i = 0; i < 2; ++i) {
    threads.emplace_back([this, i, &stop] {
      while (!stop) {
        const View comes = Register(i * kPage, 8 * kPage);
        const View nested = Register(2 * kPage, kPage);
      }
    });
  }
  const TimePoint until = Clock::now() + milliseconds(200);
  while (Clock::now() < until) {
    for (const uint64_t offset : {uint64_t{0}, 2 * kPage, 4 * kPage - 1}) {
      EXPECT_GE(Reach(offset), 4 * kPage - offset);
    }
    (void)Reach(6 * kPage);
  }
  stop = true;
  threads.clear();
  EXPECT_EQ(registrar_->chunks(0), 1u);
}

// Its work requests are counted when it starts and cut when there is room for them.
class RegionsOfAnOperation : public RdmaRegistrarTest {
 protected:
  static constexpr uint64_t kBlocks = 64;

  // Blocks of a page; each lies at another place there, so that each is a work request of its own.
  std::unique_ptr<RdmaOperation> Start(uint64_t block, uint64_t first = 0) {
    auto plan = std::make_shared<MovePlan>();
    plan->operation = wire::Operation::kWrite;
    plan->local = {allocation_};
    plan->remote = {{nullptr, std::make_shared<RdmaRemoteBuffer>(
                                  nullptr, std::vector<wire::RdmaChunk>{{kArena, 1 << 20, {1}}},
                                  DeviceSet{0})}};
    MoveSegment segment;
    segment.local_offset = first;
    segment.length = block;
    segment.count = kBlocks;
    segment.local_stride = 2 * block;
    segment.remote_stride = block;
    plan->segments.push_back(segment);
    plan->bytes = kBlocks * block;
    RdmaOperation::Setup setup;
    setup.plan = plan;
    setup.registrar = &*registrar_;
    setup.slice_bytes = 1 << 20;
    return std::make_unique<RdmaOperation>(setup);
  }
  // Bytes of the work requests that it has, each once.
  static uint64_t MoveAll(RdmaOperation* operation) {
    uint64_t bytes = 0;
    while (operation->has_more()) {
      const NumberedWork work = operation->Take(Clock::now());
      EXPECT_GT(work.work.length, 0u);
      bytes += work.work.length;
      operation->Moved(work);
    }
    EXPECT_TRUE(operation->Update());
    EXPECT_TRUE(operation->UnfinishedItems().empty());
    return bytes;
  }
};

TEST_F(RegionsOfAnOperation, SmallerViewsThatComeMeanwhileLeaveNoByteBehind) {
  const View big = Register(0, kArena);
  const auto operation = Start(4 * kPage, 16 * kPage);  // far from where the big one begins
  std::vector<View> small;
  for (uint64_t i = 0; i < kArena / kPage; ++i) small.push_back(Register(i * kPage, kPage));
  EXPECT_EQ(MoveAll(operation.get()), kBlocks * 4 * kPage);
}

TEST_F(RegionsOfAnOperation, ALargerViewThatComesMeanwhileLeavesNoWorkWithoutBytes) {
  std::vector<View> small;
  for (uint64_t i = 0; i < kArena / kPage; ++i) small.push_back(Register(i * kPage, kPage));
  const auto operation = Start(4 * kPage);
  const View big = Register(0, kArena);
  EXPECT_EQ(MoveAll(operation.get()), kBlocks * 4 * kPage);
}

TEST_F(RegionsOfAnOperation, WhatItWasCountedWithStaysAsLongAsIt) {
  View big = Register(0, kArena);
  const auto operation = Start(kPage);
  big.reset();
  EXPECT_EQ(MoveAll(operation.get()), kBlocks * kPage);
}

}  // namespace
}  // namespace gantry::transport
