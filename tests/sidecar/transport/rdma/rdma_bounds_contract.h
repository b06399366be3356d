// What the rdma transport owes where a buffer or one of its chunks ends, over any two Verbs: bytes
// move whole across seams, and not one moves outside of a buffer, whatever its description says.
// Used by one thread at a time.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/sidecar/transport/rdma/rdma_place.h"

namespace gantry::transport {

struct RdmaBoundsSetup {
  // `region_bytes_max`: see ShortVerbs.
  std::function<std::unique_ptr<RdmaPlace>(const RdmaOptions& options, uint64_t region_bytes_max)>
      make;
};

class RdmaBounds : public ::testing::TestWithParam<RdmaBoundsSetup> {
 protected:
  using TestArena = gantry::testing::TestArena;
  static constexpr uint64_t kPage = 4096;

  void Make(const RdmaOptions& options, uint64_t region_bytes_max = UINT64_MAX) {
    place_ = GetParam().make(options, region_bytes_max);
  }
  RdmaWorld& world() { return place_->world(); }
  std::unique_ptr<Operation> Start(wire::Operation direction, const RemoteAllocation& remote,
                                   uint64_t here, uint64_t there, uint64_t length) {
    return world().transport_.Start(
        world().WithNics(PlanOf(direction, local_buffer_, remote, here, there, length)), 0,
        ++token_);
  }

  std::unique_ptr<RdmaPlace> place_;
  std::shared_ptr<const memory::MappedAllocation> local_buffer_;
  uint64_t token_ = 0;
};

// 256 MiB here and there, of which tests touch only what they move, on devices whose regions have
// 64 MiB and that register no more than these of what is longer.
class RdmaSeams : public RdmaBounds {
 protected:
  static constexpr uint64_t kChunk = 64 << 20;
  static constexpr uint64_t kMove = 1 << 20;
  static constexpr uint64_t kGuard = 64;
  static constexpr uint64_t kAcross = kChunk - (512 << 10) + 1;

  void Make(uint64_t chunk_bytes) {
    RdmaOptions options;
    options.chunk_bytes = chunk_bytes;
    options.slice_bytes = 4 * kChunk;  // so that a seam is all that cuts
    RdmaBounds::Make(options, kChunk);
    local_buffer_ = world().Local(here_);
    chunks_ = world().Describe(there_);
    remote_ = world().Remote(chunks_);
    local_chunks_ = world().registrar_.chunks(0);
  }

  static void Fill(const TestArena& arena, uint64_t offset, uint64_t length, uint64_t seed) {
    uint64_t state = seed;
    for (uint64_t i = 0; i < length; ++i) {
      state = state * 6364136223846793005ULL + 1442695040888963407ULL;
      arena.data()[offset + i] = static_cast<uint8_t>(state >> 56);
    }
  }
  // The bytes with those around them.
  static std::vector<uint8_t> Around(const TestArena& arena, uint64_t offset) {
    const uint64_t begin = offset - std::min(offset, kGuard);
    const uint64_t end = std::min<uint64_t>(offset + kMove + kGuard, arena.size());
    return {arena.data() + begin, arena.data() + end};
  }
  // 1 MiB, both ways, as so many work requests.
  void Move(uint64_t here, uint64_t there, uint64_t work_requests) {
    for (const auto direction : {wire::Operation::kWrite, wire::Operation::kRead}) {
      const bool writes = direction == wire::Operation::kWrite;
      SCOPED_TRACE(writes ? "write" : "read");
      const TestArena& from = writes ? here_ : there_;
      const TestArena& to = writes ? there_ : here_;
      const uint64_t from_offset = writes ? here : there;
      const uint64_t to_offset = writes ? there : here;
      Fill(from, from_offset, kMove, ++seed_);
      Fill(to, to_offset - std::min(to_offset, kGuard), kGuard, ++seed_);
      std::vector<uint8_t> expected = Around(to, to_offset);
      std::copy_n(from.data() + from_offset, kMove,
                  expected.begin() + static_cast<ptrdiff_t>(std::min(to_offset, kGuard)));
      const auto operation = Start(direction, remote_, here, there, kMove);
      ASSERT_TRUE(world().Finish(*operation));
      ASSERT_FALSE(operation->error()) << operation->error()->message;
      EXPECT_EQ(operation->progress().chunks_total, work_requests);
      EXPECT_EQ(operation->progress().bytes, kMove);
      EXPECT_TRUE(Around(to, to_offset) == expected);
    }
  }

  // 1 MiB, one way, which a device refuses: the one there, which is said so, or the one here.
  void ExpectRefused(wire::Operation direction, uint64_t here, uint64_t there, bool by_peer) {
    SCOPED_TRACE(std::to_string(here) + " here, " + std::to_string(there) + " there");
    world().errors_.clear();
    const auto operation = Start(direction, remote_, here, there, kMove);
    ASSERT_TRUE(world().Finish(*operation));
    ASSERT_TRUE(operation->error()) << "it went through";
    if (by_peer) {
      EXPECT_EQ(operation->error()->code, ErrorCode::kStaleGeneration)
          << operation->error()->message;
    }
    EXPECT_EQ(world().errors_.size(), 1u);
    EXPECT_LT(operation->progress().bytes, kMove);
  }

  const TestArena here_{4 * kChunk, TestArena::Untouched()};
  const TestArena there_{4 * kChunk, TestArena::Untouched()};
  std::vector<wire::RdmaChunk> chunks_;
  RemoteAllocation remote_;
  size_t local_chunks_ = 0;
  uint64_t seed_ = 0;
};

TEST_P(RdmaSeams, BytesMoveWholeAcrossThem) {
  Make(0);
  EXPECT_EQ(chunks_.size(), 4u);
  EXPECT_EQ(local_chunks_, 4u);
  for (size_t i = 0; i < chunks_.size(); ++i) {
    EXPECT_EQ(chunks_[i].length, kChunk);
    EXPECT_EQ(chunks_[i].address, chunks_[0].address + i * kChunk);
  }
  constexpr uint64_t kLast = 4 * kChunk - kMove;
  Move(0, kLast, 1);
  Move(kLast, 0, 1);
  Move(kMove, kAcross, 2);
  Move(kAcross, kMove, 2);
  Move(2 * kAcross + kMove / 2, kAcross, 3);  // seams at different bytes of what is moved
  Move(kChunk + kAcross, kAcross, 2);         // at the same one
  EXPECT_TRUE(world().errors_.empty());
}

// The same without chunks, on devices that register less than they were asked for: each of these
// moves shows that. It is the address that decides, not how long the move is.
TEST_P(RdmaSeams, WithoutChunksTheDevicesRefuseWhatIsBehindTheFirstSeam) {
  Make(4 * kChunk);
  ASSERT_EQ(chunks_.size(), 1u);
  ASSERT_EQ(local_chunks_, 1u);
  Move(0, kMove, 1);
  Move(kChunk - kMove, kChunk - kMove, 1);
  constexpr uint64_t kLast = 4 * kChunk - kMove;
  for (const auto direction : {wire::Operation::kWrite, wire::Operation::kRead}) {
    SCOPED_TRACE(direction == wire::Operation::kWrite ? "write" : "read");
    ExpectRefused(direction, 0, kLast, true);
    ExpectRefused(direction, kMove, kAcross, true);
    ExpectRefused(direction, kLast, 0, false);
    ExpectRefused(direction, kAcross, kMove, false);
  }
  Move(0, kMove, 1);
}

// A buffer in an allocation with others around it.
class RdmaForgeries : public RdmaBounds {
 protected:
  static constexpr uint64_t kBegin = 2 * kPage;  // of the buffer
  static constexpr uint64_t kLength = 4 * kPage;
  static constexpr uint64_t kNeighbour = kBegin + kLength;  // begins there

  void SetUp() override {
    Make({});
    local_buffer_ = world().Local(here_);
    chunks_ = world().Describe(there_, kBegin, kLength);
    neighbour_ = world().Describe(there_, kNeighbour, kLength);
    read_only_ = world().Describe(there_, kBegin, kLength, {true, false});
    ASSERT_EQ(chunks_.size(), 1u);
    ASSERT_EQ(neighbour_.size(), 1u);
    remote_ = world().Remote(chunks_);
  }
  std::vector<uint8_t> Bytes(const TestArena& arena) {
    return {arena.data(), arena.data() + arena.size()};
  }
  // Moves a page at `there` of a buffer that is described so, while others of the same peer run.
  void ExpectRefused(const std::string& what, std::vector<wire::RdmaChunk> forged, uint64_t there,
                     std::vector<wire::Operation> directions = {wire::Operation::kWrite,
                                                                wire::Operation::kRead}) {
    for (const auto direction : directions) {
      SCOPED_TRACE(what + (direction == wire::Operation::kWrite ? ", write" : ", read"));
      here_.Fill(++seed_);
      there_.Fill(++seed_);
      std::vector<uint8_t> here = Bytes(here_);
      std::vector<uint8_t> expected = Bytes(there_);
      std::copy_n(here.data() + kPage, kPage, expected.data() + kBegin);
      std::copy_n(expected.data() + kBegin + kPage, kPage, here.data() + 2 * kPage);
      world().errors_.clear();
      const auto before = Start(wire::Operation::kWrite, remote_, kPage, 0, kPage);
      const auto refused = Start(direction, world().Remote(forged), 0, there, kPage);
      const auto after = Start(wire::Operation::kRead, remote_, 2 * kPage, kPage, kPage);
      for (const auto* operation : {&before, &refused, &after}) {
        ASSERT_TRUE(world().Finish(**operation));
      }
      ASSERT_TRUE(refused->error());
      EXPECT_EQ(refused->error()->code, ErrorCode::kStaleGeneration) << refused->error()->message;
      EXPECT_FALSE(refused->error()->hint.empty());
      EXPECT_EQ(refused->progress().bytes, 0u);
      EXPECT_EQ(refused->UnfinishedItems(), std::vector<uint32_t>{0});
      EXPECT_EQ(world().errors_.size(), 1u);
      EXPECT_FALSE(before->error()) << before->error()->message;
      EXPECT_FALSE(after->error()) << after->error()->message;
      EXPECT_TRUE(Bytes(there_) == expected);
      EXPECT_TRUE(Bytes(here_) == here);
    }
  }

  TestArena here_{16 * kPage};
  TestArena there_{16 * kPage};
  std::vector<wire::RdmaChunk> chunks_;
  std::vector<wire::RdmaChunk> neighbour_;
  std::vector<wire::RdmaChunk> read_only_;
  RemoteAllocation remote_;
  uint64_t seed_ = 0;
};

TEST_P(RdmaForgeries, BeyondTheBufferNothingIsPosted) {
  for (const auto direction : {wire::Operation::kWrite, wire::Operation::kRead}) {
    const std::vector<uint8_t> here = Bytes(here_);
    const std::vector<uint8_t> there = Bytes(there_);
    const auto operation = Start(direction, remote_, 0, kLength - 100, 200);
    ASSERT_TRUE(world().Finish(*operation));
    ASSERT_TRUE(operation->error());
    EXPECT_EQ(operation->error()->code, ErrorCode::kUnregistered) << operation->error()->message;
    EXPECT_FALSE(operation->progress().first_posted);
    EXPECT_EQ(operation->UnfinishedItems(), std::vector<uint32_t>{0});
    EXPECT_TRUE(Bytes(here_) == here);
    EXPECT_TRUE(Bytes(there_) == there);
  }
  EXPECT_TRUE(world().errors_.empty());
}

TEST_P(RdmaForgeries, TheDeviceRefusesALongerChunk) {
  auto forged = chunks_;
  forged[0].length += 2 * kPage;
  ExpectRefused("behind the buffer", forged, kLength);
  ExpectRefused("from one byte inside of it on", forged, kLength - 1);
  forged[0].address -= kPage;
  ExpectRefused("in front of it", forged, kPage - 1);
}

TEST_P(RdmaForgeries, TheDeviceRefusesAKeyOfNothing) {
  auto forged = chunks_;
  forged[0].keys[0] ^= 1;
  ExpectRefused("no such key", forged, 0);
}

TEST_P(RdmaForgeries, TheDeviceRefusesAKeyOfAnotherBuffer) {
  auto forged = chunks_;
  forged[0].keys = neighbour_[0].keys;
  ExpectRefused("the neighbour's key", forged, kLength - kPage);
}

TEST_P(RdmaForgeries, TheDeviceRefusesAnAddressOfANeighbour) {
  auto forged = chunks_;
  forged[0].address = neighbour_[0].address;
  ExpectRefused("the neighbour's address", forged, 0);
}

TEST_P(RdmaForgeries, TheDeviceRefusesToWriteWhatIsToBeRead) {
  ExpectRefused("only to be read", read_only_, 0, {wire::Operation::kWrite});
}

// A peer whose ends do what no sidecar asks of them: one queue pair, on its first device.
class HostileOwner final : public QueuePairExchange {
 public:
  explicit HostileOwner(RdmaWorld& world)
      : owner_(*world.devices_there_), peer_devices_(owner_.Addresses()) {}

  const std::vector<wire::RdmaDeviceAddress>& peer_devices() const override {
    return peer_devices_;
  }
  Result<wire::QueuePairGrant> Connect(const std::vector<wire::QueuePairRequest>& requests,
                                       TimePoint) override {
    VerbsDevice& device = *owner_.at(0).device;
    QueuePairOptions options = owner_.QueuePairOptionsOf(0, owner_.at(0).gid);
    options.remote_read = options.remote_write = true;
    wire::QueuePairGrant grant;
    for (const wire::QueuePairRequest& request : requests) {
      queues_.push_back(*device.CreateCompletionQueue(16));
      pairs_.push_back(*device.CreateQueuePair(*queues_.back(), options));
      grant.ends.push_back(owner_.AddressOf(0, *pairs_.back(), owner_.at(0).gid));
      RETURN_IF_ERROR(pairs_.back()->Connect(grant.ends.back(), request.from, options));
    }
    return grant;
  }
  Status End(uint64_t, TimePoint) override { return {}; }

  // Through its `pair`-th end; what became of it.
  std::optional<WorkStatus> Run(size_t pair, const WorkItem& item) {
    int error_number = 0;
    EXPECT_EQ(pairs_[pair]->Post({&item, 1}, &error_number), 1u) << error_number;
    WorkCompletion completion;
    for (const TimePoint limit = Clock::now() + milliseconds(20'000); Clock::now() < limit;) {
      if (queues_[pair]->Poll({&completion, 1}) == 1) return completion.status;
    }
    return std::nullopt;
  }

 private:
  const RdmaDevices& owner_;
  const std::vector<wire::RdmaDeviceAddress> peer_devices_;
  std::vector<std::unique_ptr<VerbsCompletionQueue>> queues_;  // outlive the pairs
  std::vector<std::unique_ptr<VerbsQueuePair>> pairs_;
};

TEST_P(RdmaForgeries, ThePeersEndsReachNothingHereWhateverKeysItKnows) {
  HostileOwner owner(world());
  const auto connection = RdmaConnection::Make(
      *world().devices_, RdmaLinks(*world().devices_, owner.peer_devices().size()).all(), owner,
      Clock::now() + milliseconds(5'000));
  ASSERT_TRUE(connection) << connection.error().message;
  const auto granted = world().registrar_.Register({{local_buffer_, 0, kPage}}, {true, true});
  const auto its_own = world().registrar_there_.Register(
      {{*memory::MappedAllocation::Create(world().mapper_, there_.source()), 0, kPage}}, {});
  ASSERT_TRUE(granted && its_own);
  const auto& target = dynamic_cast<const MemoryRegionSet&>(**granted).list()[0];
  const auto& source = dynamic_cast<const MemoryRegionSet&>(**its_own).list()[0];
  const std::vector<uint8_t> here = Bytes(here_);
  const std::vector<uint8_t> there = Bytes(there_);
  size_t pair = 0;
  for (const auto operation : {WorkOperation::kWrite, WorkOperation::kRead}) {
    SCOPED_TRACE(operation == WorkOperation::kWrite ? "write" : "read");
    const WorkItem item = {.operation = operation,
                           .local_address = source.address,
                           .local_key = source.local_keys[0],
                           .length = 64,
                           .remote_address = target.address,
                           .remote_key = target.remote_keys[0]};
    const auto ended = owner.Run(pair++, item);
    ASSERT_TRUE(ended);
    EXPECT_EQ(*ended, WorkStatus::kRemoteInvalidRequest);
    EXPECT_TRUE(Bytes(here_) == here);
    EXPECT_TRUE(Bytes(there_) == there);
  }
}

}  // namespace gantry::transport
