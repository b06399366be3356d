// Buffers over a workload's memory, registered as memory regions on two fake devices. Used by one
// thread at a time.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lib/base/byte_range.h"
#include "sidecar/memory/mapped_allocation.h"
#include "sidecar/transport/rdma/verbs/memory_region_set.h"
#include "tests/fakes/counting_mapper.h"
#include "tests/fakes/fake_verbs_fixture.h"
#include "tests/fakes/test_arena.h"

namespace gantry::transport {

inline constexpr uint64_t kMiB = uint64_t{1} << 20;

class RegionSetFixture : public testing::FakeVerbsFixture {
 protected:
  using Set = std::shared_ptr<const MemoryRegionSet>;
  using Allocation = std::shared_ptr<const memory::MappedAllocation>;

  // The devices, of which the second takes regions of `second_max` bytes at most.
  void OpenTwo(uint64_t first_max, uint64_t second_max) {
    testing::FakeDeviceOptions first{.name = "first"};
    testing::FakeDeviceOptions second{.name = "second"};
    first.limits.region_bytes_max = first_max;
    second.limits.region_bytes_max = second_max;
    host_ = std::make_unique<testing::FakeVerbs>(
        fabric_, std::vector<testing::FakeDeviceOptions>{first, second});
    for (const char* name : {"first", "second"}) {
      opened_.push_back(*host_->Open(name, 1));
      devices_.push_back({opened_.back().get(), 0});
    }
  }
  Allocation Allocate(const testing::TestArena& arena, bool writable = true) {
    memory::AllocationSource source = arena.source(writable);
    if (!writable) source.fd = std::make_shared<const UniqueFd>(arena.ReadOnlyFd());
    return *memory::MappedAllocation::Create(mapper_, std::move(source));
  }
  Result<Set> Register(std::vector<memory::NicPiece> pieces, wire::Access access = {true, true}) {
    return MemoryRegionSet::Register(devices_, std::move(pieces), access, options_);
  }
  static std::vector<ByteRange> RangesOf(const MemoryRegionSet& set) {
    std::vector<ByteRange> ranges;
    for (const auto& chunk : set.list()) ranges.push_back({chunk.offset, chunk.length});
    return ranges;
  }
  // How work ends that a peer does to `length` bytes at `address`, with the key of a chunk on the
  // first device.
  WorkStatus Reach(const MemoryRegionSet::Chunk& chunk, uint64_t address, uint32_t length,
                   WorkOperation operation = WorkOperation::kRead) {
    const auto peer = MakeEnd(one_, "a0", 0x77);
    auto queue = *opened_[0]->CreateCompletionQueue(8);
    auto pair = *opened_[0]->CreateQueuePair(*queue, Options());
    QueuePairAddress here = peer->Address();
    here.number = pair->number();
    here.gid = opened_[0]->Gids()[1].gid;
    EXPECT_TRUE(pair->Connect(here, peer->Address(), Options()));
    EXPECT_TRUE(peer->pair->Connect(peer->Address(), here, Options()));
    WorkItem item = Item(1, operation, *peer, 0, length, *peer, 0);
    item.remote_address = address;
    item.remote_key = chunk.remote_keys[0];
    EXPECT_EQ(Post(*peer, {item}), 1u);
    const std::vector<WorkCompletion> done = peer->Poll();
    read_.assign(peer->memory.begin(), peer->memory.begin() + length);
    return done.size() == 1 ? done[0].status : WorkStatus::kGeneral;
  }

  CountingMapper mapper_;
  std::unique_ptr<testing::FakeVerbs> host_;
  std::vector<std::unique_ptr<VerbsDevice>> opened_;
  std::vector<RegionDevice> devices_;
  RegionSetOptions options_;
  std::vector<std::byte> read_;  // what the last call of Reach read
};

}  // namespace gantry::transport
