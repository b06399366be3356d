#include "sidecar/transport/rdma/verbs/memory_region_set.h"

#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "tests/sidecar/transport/rdma/region_set_fixture.h"

namespace gantry::transport {
namespace {

using memory::NicPiece;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TestArena;

class MemoryRegionSetTest : public RegionSetFixture {};

TEST_F(MemoryRegionSetTest, ABufferLargerThanARegionMayBeIsSeveralOnEachDevice) {
  OpenTwo(64 * kMiB, UINT64_MAX);
  const TestArena arena(256 * kMiB);
  const auto set = Register({{Allocate(arena), 0, arena.size()}});
  ASSERT_TRUE(set) << set.error().message;
  EXPECT_EQ((*set)->chunks(), 4u);
  EXPECT_THAT(RangesOf(**set),
              ElementsAre(ByteRange{0, 64 * kMiB}, ByteRange{64 * kMiB, 64 * kMiB},
                          ByteRange{128 * kMiB, 64 * kMiB}, ByteRange{192 * kMiB, 64 * kMiB}));
  EXPECT_EQ(host_->live().regions, 8) << "the second device takes the same chunks";
  for (const auto& chunk : (*set)->list()) {
    ASSERT_EQ(Reach(chunk, chunk.address, 16), WorkStatus::kSuccess);
    EXPECT_EQ(std::memcmp(read_.data(), arena.data() + chunk.offset, 16), 0);
    ASSERT_EQ(Reach(chunk, chunk.address + chunk.length - 16, 16), WorkStatus::kSuccess);
    EXPECT_EQ(std::memcmp(read_.data(), arena.data() + chunk.offset + chunk.length - 16, 16), 0);
  }
}

TEST_F(MemoryRegionSetTest, TheSmallestDeviceSaysHowLargeAChunkIs) {
  OpenTwo(UINT64_MAX, 3 * 4096);
  const TestArena arena(5 * 4096);
  const auto set = Register({{Allocate(arena), 0, arena.size()}});
  ASSERT_TRUE(set);
  EXPECT_THAT(RangesOf(**set), ElementsAre(ByteRange{0, 12288}, ByteRange{12288, 8192}));
  devices_[0].chunk_bytes = 8192;
  const auto capped = Register({{Allocate(arena), 0, arena.size()}});
  EXPECT_EQ((*capped)->chunks(), 3u) << "a setting below what the devices tell";
}

TEST_F(MemoryRegionSetTest, PiecesWithOddOffsetsAreRegisteredByteForByte) {
  OpenTwo(16384, 16384);
  const TestArena one(kMiB, 1);
  const TestArena two(kMiB, 2);
  const Allocation first = Allocate(one);
  const auto set = Register({{first, 4097, 20000}, {Allocate(two), 33, 1}, {first, 100, 8192}});
  ASSERT_TRUE(set) << set.error().message;
  EXPECT_THAT(RangesOf(**set), ElementsAre(ByteRange{0, 16383}, ByteRange{16383, 3617},
                                           ByteRange{20000, 1}, ByteRange{20001, 8192}));
  const uint8_t* const expected[] = {one.data() + 4097, one.data() + 4097 + 16383, two.data() + 33,
                                     one.data() + 100};
  const uint64_t piece_offsets[] = {0, 16383, 0, 0};
  const uint32_t pieces[] = {0, 0, 1, 2};
  for (size_t i = 0; i < 4; ++i) {
    SCOPED_TRACE(i);
    const auto& chunk = (*set)->list()[i];
    EXPECT_EQ(chunk.piece, pieces[i]);
    EXPECT_EQ(chunk.piece_offset, piece_offsets[i]);
    const auto last = static_cast<uint32_t>(chunk.length);
    ASSERT_EQ(Reach(chunk, chunk.address, last), WorkStatus::kSuccess);
    EXPECT_EQ(std::memcmp(read_.data(), expected[i], last), 0);
    EXPECT_EQ(Reach(chunk, chunk.address, last + 1), WorkStatus::kRemoteAccess);
    EXPECT_EQ(Reach(chunk, chunk.address - 1, 1), WorkStatus::kRemoteAccess);
  }
}

TEST_F(MemoryRegionSetTest, APeerDoesNotReachTheNeighboursInTheSameAllocation) {
  OpenTwo(UINT64_MAX, UINT64_MAX);
  const TestArena arena(kMiB);
  const Allocation allocation = Allocate(arena);
  const auto set = Register({{allocation, 8192, 4096}});
  const auto& chunk = (*set)->list().front();
  EXPECT_EQ(Reach(chunk, chunk.address, 4096), WorkStatus::kSuccess);
  for (const WorkOperation operation : {WorkOperation::kRead, WorkOperation::kWrite}) {
    EXPECT_EQ(Reach(chunk, chunk.address + 1, 4096, operation), WorkStatus::kRemoteAccess);
    EXPECT_EQ(Reach(chunk, chunk.address - 1, 2, operation), WorkStatus::kRemoteAccess);
    EXPECT_EQ(Reach(chunk, chunk.address + 8192, 1, operation), WorkStatus::kRemoteAccess);
  }
}

TEST_F(MemoryRegionSetTest, AccessIsWhatWasGrantedAndNoMore) {
  OpenTwo(UINT64_MAX, UINT64_MAX);
  const TestArena arena(8192);
  const auto status = [&](const wire::Access& access, WorkOperation operation) {
    const auto set = Register({{Allocate(arena), 0, 4096}}, access);
    const auto& chunk = (*set)->list().front();
    return Reach(chunk, chunk.address, 8, operation);
  };
  EXPECT_EQ(status({true, false}, WorkOperation::kRead), WorkStatus::kSuccess);
  EXPECT_EQ(status({true, false}, WorkOperation::kWrite), WorkStatus::kRemoteAccess);
  EXPECT_EQ(status({false, true}, WorkOperation::kRead), WorkStatus::kRemoteAccess);
  EXPECT_EQ(status({false, true}, WorkOperation::kWrite), WorkStatus::kSuccess);
  EXPECT_EQ(status({false, false}, WorkOperation::kRead), WorkStatus::kRemoteAccess);
}

TEST_F(MemoryRegionSetTest, ReadOnlyMemoryIsReadByPeersAndWrittenByNobody) {
  OpenTwo(UINT64_MAX, UINT64_MAX);
  const TestArena arena(8192);
  const Allocation allocation = Allocate(arena, /*writable=*/false);
  const auto set = Register({{allocation, 0, 8192}}, {true, false});
  ASSERT_TRUE(set) << set.error().message;
  const auto& chunk = (*set)->list().front();
  EXPECT_EQ(Reach(chunk, chunk.address, 64), WorkStatus::kSuccess);

  // A read into it, by its own device, has no right to write either.
  const auto peer = MakeEnd(two_, "b0", 0x77);
  auto queue = *opened_[0]->CreateCompletionQueue(8);
  auto pair = *opened_[0]->CreateQueuePair(*queue, Options());
  QueuePairAddress here = peer->Address();
  here.number = pair->number();
  here.gid = opened_[0]->Gids()[1].gid;
  ASSERT_TRUE(pair->Connect(here, peer->Address(), Options()));
  ASSERT_TRUE(peer->pair->Connect(peer->Address(), here, Options()));
  WorkItem item = Read(1, *peer, 0, 64, *peer, 0);
  item.local_address = chunk.address;
  item.local_key = chunk.local_keys[0];
  int error_number = 0;
  ASSERT_EQ(pair->Post({&item, 1}, &error_number), 1u);
  WorkCompletion done;
  ASSERT_EQ(queue->Poll({&done, 1}), 1);
  EXPECT_EQ(done.status, WorkStatus::kLocalProtection);
  pair.reset();
  queue.reset();

  const auto refused = Register({{Allocate(arena), 0, 4096}, {allocation, 0, 8192}}, {true, true});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kFdReadOnly);
  EXPECT_THAT(refused.error().message, HasSubstr("piece 2 of the buffer: peers are to write"));
  EXPECT_EQ(host_->live().regions, 2);
}

// Whoever registers it is not refused for it: see kPathUnavailable of NicRegistrar.
TEST_F(MemoryRegionSetTest, WhereReadOnlyMemoryCannotBePinnedItHasOtherWays) {
  OpenTwo(UINT64_MAX, UINT64_MAX);
  const TestArena arena(8192);
  host_->FailCalls("second", testing::FakeCall::kRegister, EFAULT);
  const auto readable = Register({{Allocate(arena, /*writable=*/false), 0, 8192}}, {true, false});
  ASSERT_FALSE(readable);
  EXPECT_EQ(readable.error().code, ErrorCode::kPathUnavailable);
  EXPECT_THAT(readable.error().hint, HasSubstr("O_RDWR"));
  EXPECT_EQ(Register({{Allocate(arena), 0, 8192}}).error().code, ErrorCode::kDeviceError);
  EXPECT_EQ(host_->live().regions, 0);
}

TEST_F(MemoryRegionSetTest, OverlappingAndEqualBuffersAreIndependent) {
  OpenTwo(8192, 8192);
  const TestArena arena(64 * 1024);
  const Allocation allocation = Allocate(arena);
  auto first = *Register({{allocation, 0, 32768}});
  const auto equal = *Register({{allocation, 0, 32768}}, {true, false});
  const auto overlapping = *Register({{allocation, 4000, 32768}});
  EXPECT_EQ(host_->live().regions, 2 * (4 + 4 + 5));
  const MemoryRegionSet::Chunk gone = first->list().front();
  EXPECT_NE(gone.remote_keys[0], equal->list().front().remote_keys[0]);
  first.reset();
  EXPECT_EQ(host_->live().regions, 2 * (4 + 5));
  EXPECT_EQ(Reach(gone, gone.address, 8), WorkStatus::kRemoteAccess);
  for (const Set& kept : {equal, overlapping}) {
    const auto& chunk = kept->list().front();
    EXPECT_EQ(Reach(chunk, chunk.address, 8), WorkStatus::kSuccess);
  }
  EXPECT_EQ(Reach(equal->list().front(), gone.address, 8, WorkOperation::kWrite),
            WorkStatus::kRemoteAccess)
      << "its access is its own";
}

TEST_F(MemoryRegionSetTest, TheMappingLivesAsLongAsItsRegions) {
  OpenTwo(UINT64_MAX, UINT64_MAX);
  const TestArena arena(8192);
  Allocation allocation = Allocate(arena);
  auto set = *Register({{allocation, 0, 8192}});
  allocation.reset();
  EXPECT_EQ(mapper_.live(), 1u);
  const auto& chunk = set->list().front();
  EXPECT_EQ(Reach(chunk, chunk.address, 8), WorkStatus::kSuccess);
  set.reset();
  EXPECT_EQ(mapper_.live(), 0u);
}

TEST_F(MemoryRegionSetTest, WhatHasNoWayOrNoPlaceIsRefused) {
  OpenTwo(UINT64_MAX, UINT64_MAX);
  const TestArena arena(8192);
  memory::AllocationSource source = arena.source();
  source.kind = wire::MemoryKind::kGpu;
  source.gpu.form = wire::GpuExport::kPiece;
  const Allocation of_gpu = *memory::MappedAllocation::Create(mapper_, source);
  const auto gpu = Register({{Allocate(arena), 0, 4096}, {of_gpu, 0, 4096}});
  ASSERT_FALSE(gpu);
  EXPECT_EQ(gpu.error().code, ErrorCode::kPathUnavailable);
  EXPECT_THAT(gpu.error().message, HasSubstr("dma-buf"));
  for (const NicPiece& outside :
       {NicPiece{Allocate(arena), 1, 8192}, NicPiece{Allocate(arena), 8193, 0},
        NicPiece{Allocate(arena), UINT64_MAX, 2}}) {
    const auto refused = Register({outside});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::kOutOfRange);
  }
  devices_[1].chunk_bytes = 4095;
  EXPECT_FALSE(Register({{Allocate(arena), 0, 8192}})) << "no page fits a region";
  EXPECT_EQ(host_->calls("first", testing::FakeCall::kRegister), 0) << "before anything is tried";
}

// The bytes of an arena that exist, of a file whose pages nobody touched.
uint64_t BackedBytes(int fd) {
  struct stat info = {};
  EXPECT_EQ(::fstat(fd, &info), 0);
  return static_cast<uint64_t>(info.st_blocks) * 512;
}

TEST_F(MemoryRegionSetTest, ALargeBuffersPagesAreTouchedAndNoOthers) {
  OpenTwo(4096 * 16, UINT64_MAX);  // chunks smaller than the limit
  options_.touch_threads = 2;      // fewer than there are slices of work
  for (const bool touched : {false, true}) {
    for (const bool writable : {false, true}) {
      const UniqueFd fd(::memfd_create("untouched", MFD_CLOEXEC | MFD_ALLOW_SEALING));
      ASSERT_EQ(::ftruncate(fd.get(), 256 * kMiB), 0);
      memory::AllocationSource source;
      source.fd = std::make_shared<const UniqueFd>(*fd.Duplicate());
      source.size = 256 * kMiB;
      source.writable = writable;
      const Allocation allocation = *memory::MappedAllocation::Create(mapper_, source);
      // Pages [0, 3) and [1024, 1024 + 17000), of which 17003 in all.
      const uint64_t bytes = 8193 + 17000 * 4096;
      options_.touch_in_parallel_from = touched ? bytes : bytes + 1;
      const auto set =
          Register({{allocation, 100, 8193}, {allocation, 4 * kMiB, 17000 * 4096}}, {true, false});
      ASSERT_TRUE(set) << set.error().message;
      EXPECT_GT((*set)->chunks(), 1000u);
      EXPECT_EQ(BackedBytes(fd.get()), touched ? 17003 * 4096 : 0);
    }
  }
}

TEST_F(MemoryRegionSetTest, ALargeBufferHasFourGigabytesUnlessItIsSaidOtherwise) {
  EXPECT_EQ(RegionSetOptions().touch_in_parallel_from, uint64_t{4} << 30);
  EXPECT_GT(RegionSetOptions().touch_threads, 1);
}

TEST_F(MemoryRegionSetTest, PagesThatCannotBeTouchedFailTheRegistration) {
  OpenTwo(UINT64_MAX, UINT64_MAX);
  const UniqueFd fd(::memfd_create("shrunk", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(fd.get(), kMiB), 0);
  memory::AllocationSource source;
  source.fd = std::make_shared<const UniqueFd>(*fd.Duplicate());
  source.size = kMiB;
  source.writable = true;
  const Allocation allocation = *memory::MappedAllocation::Create(mapper_, source);
  ASSERT_TRUE(allocation->in_process().BytesForDevices());
  ASSERT_EQ(::ftruncate(fd.get(), 4096), 0);
  options_.touch_in_parallel_from = kMiB;
  const auto refused = Register({{allocation, 0, kMiB}});
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("page tables"));
  EXPECT_EQ(host_->calls("first", testing::FakeCall::kRegister), 0);
}

}  // namespace
}  // namespace gantry::transport
