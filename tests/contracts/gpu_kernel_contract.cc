// What the copy kernel moves, and that it touches nothing else.
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <set>

#include "tests/contracts/gpu_driver_contract.h"

namespace gantry::testing {
namespace {

// Bytes that repeat nowhere, unlike Pattern, so that no tile is taken for another.
std::vector<uint8_t> RandomBytes(uint64_t bytes, uint64_t seed) {
  std::vector<uint64_t> words(bytes / 8 + 1);
  std::generate(words.begin(), words.end(), std::mt19937_64(seed));
  std::vector<uint8_t> made(bytes);
  std::memcpy(made.data(), words.data(), bytes);
  return made;
}

std::string DifferenceOf(const std::vector<uint8_t>& found, const std::vector<uint8_t>& wanted) {
  const auto [at, expected] = std::mismatch(found.begin(), found.end(), wanted.begin());
  if (at == found.end()) return "";
  return "byte " + std::to_string(at - found.begin()) + " is " + std::to_string(*at) + " and not " +
         std::to_string(*expected);
}

// Whole pages of the host that a device reaches.
class PinnedPages {
 public:
  PinnedPages(gpu::GpuContext& context, uint64_t bytes) : bytes_((bytes / 4096 + 1) * 4096) {
    data_ = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    auto registered = context.RegisterHost(data_, bytes_);
    EXPECT_OK(registered);
    if (registered) registered_ = *std::move(registered);
  }
  PinnedPages(const PinnedPages&) = delete;
  PinnedPages& operator=(const PinnedPages&) = delete;
  ~PinnedPages() {
    registered_.reset();
    ::munmap(data_, bytes_);
  }
  uint8_t* data() { return static_cast<uint8_t*>(data_); }
  DeviceAddress base() const {
    return registered_ == nullptr ? DeviceAddress{} : registered_->range().base;
  }

 private:
  const uint64_t bytes_;
  void* data_ = nullptr;
  std::unique_ptr<gpu::GpuMemory> registered_;
};

// Memory that takes part, and how the test gets at it: by a context, or as the host's.
struct Place {
  AddressRange range;
  gpu::GpuContext* context = nullptr;
  uint8_t* host = nullptr;

  void Write(const std::vector<uint8_t>& bytes) const {
    if (host != nullptr) {
      std::copy(bytes.begin(), bytes.end(), host);
    } else {
      EXPECT_OK(context->CopyFromHost(range.base, bytes.data(), bytes.size()));
    }
  }
  std::vector<uint8_t> Read() const {
    if (host != nullptr) return {host, host + range.size};
    std::vector<uint8_t> bytes(range.size);
    EXPECT_OK(context->CopyToHost(bytes.data(), range.base, bytes.size()));
    return bytes;
  }
};

// Offsets in the target and in the source.
struct Move {
  uint64_t to = 0;
  uint64_t from = 0;
  uint64_t bytes = 0;
};

constexpr uint64_t kAlignments = 16;  // in bytes, of the widest access

// Side by side with at least an alignment between them; the list names them in another order.
class MoveList {
 public:
  void Add(uint64_t bytes, uint64_t to_offset, uint64_t from_offset) {
    moves_.push_back({size_ + to_offset, size_ + from_offset, bytes});
    size_ += (bytes / kAlignments + 3) * kAlignments;
  }
  void AddEveryAlignment(uint64_t bytes) {
    for (uint64_t to = 0; to < kAlignments; ++to) {
      for (uint64_t from = 0; from < kAlignments; ++from) Add(bytes, to, from);
    }
  }
  // Of the memory that it takes on either side.
  uint64_t size() const { return size_; }
  std::vector<Move> shuffled() const {
    std::vector<Move> moves = moves_;
    std::shuffle(moves.begin(), moves.end(), std::mt19937(7));
    return moves;
  }

 private:
  std::vector<Move> moves_;
  uint64_t size_ = 0;
};

// Every width of access, with and without heads and tails, in items of one byte and of many tiles.
MoveList MixedMoves() {
  MoveList list;
  uint64_t at = 0;
  for (uint64_t bytes = 1; bytes <= 130; ++bytes, ++at) list.Add(bytes, at % 16, at * 7 % 16);
  for (const uint64_t bytes : {512UL, 4095UL, 4096UL, 4097UL, 16 * kKiB, 16 * kKiB + 1,
                               64 * kKiB + 7, 256 * kKiB, kMiB + 3}) {
    for (const auto& [to, from] : {std::pair{0UL, 0UL},
                                   {5UL, 5UL},
                                   {8UL, 0UL},
                                   {3UL, 11UL},
                                   {4UL, 8UL},
                                   {6UL, 0UL},
                                   {0UL, 1UL}})
      list.Add(bytes, to, from);
  }
  return list;
}

class GpuKernelContract : public GpuDriverContract {
 protected:
  void SetUp() override {
    GpuDriverContract::SetUp();
    ASSERT_OK(context_->LoadKernels());
  }

  // Items between two places, as a list that the device reads.
  static std::vector<gpu::CopyItem> ItemsOf(const std::vector<Move>& moves, const Place& target,
                                            const Place& source) {
    std::vector<gpu::CopyItem> items;
    items.reserve(moves.size());
    for (const Move& move : moves)
      items.push_back({target.range.base + move.to, source.range.base + move.from, move.bytes});
    return items;
  }
  static uint64_t LongestOf(const std::vector<gpu::CopyItem>& items) {
    return std::accumulate(
        items.begin(), items.end(), uint64_t{0},
        [](uint64_t longest, const gpu::CopyItem& item) { return std::max(longest, item.bytes); });
  }
  // Launches in a context and compares every byte of both places.
  static void MoveAndCompare(gpu::GpuContext& context, const std::vector<Move>& moves,
                             const Place& target, const Place& source) {
    if (HasFailure()) return;  // there may be no memory
    const std::vector<uint8_t> sent = RandomBytes(source.range.size, 1);
    std::vector<uint8_t> wanted = RandomBytes(target.range.size, 2);
    source.Write(sent);
    target.Write(wanted);
    for (const Move& move : moves)
      std::memcpy(wanted.data() + move.to, sent.data() + move.from, move.bytes);
    const std::vector<gpu::CopyItem> items = ItemsOf(moves, target, source);
    PinnedPages list(context, items.size() * sizeof(gpu::CopyItem));
    std::memcpy(list.data(), items.data(), items.size() * sizeof(gpu::CopyItem));
    const auto stream = context.NewStream();
    ASSERT_OK(stream);
    EXPECT_OK((*stream)->CopyByKernel(list.base(), static_cast<uint32_t>(items.size()),
                                      LongestOf(items)));
    ASSERT_OK((*stream)->Synchronize());
    EXPECT_EQ(DifferenceOf(target.Read(), wanted), "") << "in the target";
    EXPECT_EQ(DifferenceOf(source.Read(), sent), "") << "in the source";
  }
  void MoveHere(const MoveList& list) {
    const AddressRange source = Make(MemoryOrigin::kDevice, list.size());
    const AddressRange target = Make(MemoryOrigin::kDevice, list.size());
    MoveAndCompare(*context_, list.shuffled(), {target, context_.get()}, {source, context_.get()});
    EXPECT_OK(allocations_->Free(source));
    EXPECT_OK(allocations_->Free(target));
  }
  static void MoveBothWays(gpu::GpuContext& context, const MoveList& list, const Place& one,
                           const Place& other) {
    MoveAndCompare(context, list.shuffled(), one, other);
    MoveAndCompare(context, list.shuffled(), other, one);
  }
};

TEST_F(GpuKernelContract, SmallItemsMoveAtEveryAlignment) {
  MoveList list;
  for (uint64_t bytes = 1; bytes <= 130; ++bytes) list.AddEveryAlignment(bytes);
  MoveHere(list);
}

TEST_F(GpuKernelContract, ItemsAroundATileMoveAtEveryAlignment) {
  for (const uint64_t bytes : {512UL, 4095UL, 4096UL, 4097UL, 16 * kKiB, 16 * kKiB + 1}) {
    SCOPED_TRACE(bytes);
    MoveList list;
    list.AddEveryAlignment(bytes);
    MoveHere(list);
  }
}

TEST_F(GpuKernelContract, ItemsOfManyTilesMoveWhole) {
  for (const uint64_t bytes : {64 * kKiB + 7, kMiB + 3, 3 * kMiB + 16}) {
    SCOPED_TRACE(bytes);
    MoveList list;
    for (uint64_t offset = 0; offset < kAlignments; offset += 3) list.Add(bytes, 0, offset);
    list.Add(bytes, 9, 9);
    MoveHere(list);
  }
}

TEST_F(GpuKernelContract, ItemsOfVeryDifferentLengthShareALaunch) { MoveHere(MixedMoves()); }

TEST_F(GpuKernelContract, ATrimmedContextMovesThemToo) {
  ASSERT_OK(context_->TrimForCopies());
  MoveHere(MixedMoves());
}

TEST_F(GpuKernelContract, AHundredThousandSmallItemsMove) {
  MoveList list;
  for (int i = 0; i < 100'000; ++i) list.Add(512, 0, 0);
  MoveHere(list);
}

// The fake knows the ends of an allocation to the byte.
TEST_F(GpuKernelContract, NothingBeyondAnAllocationIsTouched) {
  for (const uint64_t bytes : {1UL, 15UL, 16UL, 17UL, 4096UL, 16 * kKiB + 5}) {
    for (const auto& [to, from] :
         {std::pair{0UL, 0UL}, {1UL, 1UL}, {8UL, 0UL}, {2UL, 0UL}, {0UL, 3UL}}) {
      SCOPED_TRACE(bytes);
      const AddressRange source = Make(MemoryOrigin::kDevice, from + bytes);
      const AddressRange target = Make(MemoryOrigin::kDevice, to + bytes);
      MoveAndCompare(*context_, {{to, from, bytes}}, {target, context_.get()},
                     {source, context_.get()});
    }
  }
}

TEST_F(GpuKernelContract, PinnedMemoryOfTheHostIsReadAndWritten) {
  const MoveList list = MixedMoves();
  PinnedPages pages(*context_, list.size());
  const Place host = {{pages.base(), list.size()}, nullptr, pages.data()};
  const Place device = {Make(MemoryOrigin::kDevice, list.size()), context_.get()};
  MoveBothWays(*context_, list, host, device);
}

TEST_F(GpuKernelContract, MemoryOfAnotherGpuIsReadAndWritten) {
  if (last_device() == 0) GTEST_SKIP() << "there is one GPU";
  auto other = driver_->OpenContext(last_device());
  ASSERT_OK(other);
  ASSERT_OK((*other)->LoadKernels());
  ASSERT_OK(context_->EnablePeerAccess(**other));
  ASSERT_OK((*other)->EnablePeerAccess(*context_));
  const MoveList list = MixedMoves();
  const auto there = (*other)->Allocate(list.size());
  ASSERT_OK(there);
  const Place near = {Make(MemoryOrigin::kDevice, list.size()), context_.get()};
  const Place far = {(*there)->range(), other->get()};
  MoveBothWays(*context_, list, near, far);
  MoveBothWays(**other, list, near, far);
}

TEST_F(GpuKernelContract, MemoryOfAnotherProcessIsReadAndWritten) {
  const MoveList list = MixedMoves();
  for (const int here : std::set<int>{0, last_device()}) {
    for (const int there : std::set<int>{0, last_device()}) {
      SCOPED_TRACE("GPU " + std::to_string(here) + ", memory of GPU " + std::to_string(there));
      auto context = driver_->OpenContext(here);
      ASSERT_OK(context);
      ASSERT_OK((*context)->LoadKernels());
      GpuExporter exporter = StartExporter();
      const auto exported = exporter.MakeDevice(there, list.size(), 7);
      ASSERT_OK(exported);
      const auto opened = (*context)->OpenIpc(exported->handle);
      ASSERT_OK(opened);
      const auto mine = (*context)->Allocate(list.size());
      ASSERT_OK(mine);
      const Place far = {(*opened)->range(), context->get()};
      const Place near = {(*mine)->range(), context->get()};
      MoveBothWays(**context, list, near, far);

      near.Write(Pattern(0, list.size(), 8));
      PinnedPages item(**context, sizeof(gpu::CopyItem));
      const gpu::CopyItem whole = {far.range.base, near.range.base, list.size()};
      std::memcpy(item.data(), &whole, sizeof(whole));
      const auto stream = (*context)->NewStream();
      ASSERT_OK(stream);
      EXPECT_OK((*stream)->CopyByKernel(item.base(), 1, whole.bytes));
      EXPECT_OK((*stream)->Synchronize());
      EXPECT_OK(exporter.Check(0, list.size(), 8)) << "as its owner sees it";
    }
  }
}

TEST_F(GpuKernelContract, PiecesOfVirtualMemoryAreReadAndWritten) {
  constexpr uint64_t kBytes = 3 * kPiece;
  MoveList list;
  for (uint64_t bytes = kMiB / 4; list.size() + bytes < kBytes - kKiB; bytes += kKiB + 5)
    list.Add(bytes, list.size() % 5, 3);
  GpuExporter exporter = StartExporter();
  for (const int device : std::set<int>{0, last_device()}) {
    const auto exported = exporter.MakeVirtual(device, {kPiece, 2 * kPiece}, 7);
    ASSERT_OK(exported);
    const auto mapped = context_->MapPieces(std::vector<gpu::PieceFd>{
        {exported->fds[0].get(), kPiece}, {exported->fds[1].get(), 2 * kPiece}});
    ASSERT_OK(mapped);
    const Place near = {Make(MemoryOrigin::kDevice, kBytes), context_.get()};
    MoveBothWays(*context_, list, near, {(*mapped)->range(), context_.get()});
  }
}

TEST_F(GpuKernelContract, NoItemsAreNoWork) {
  EXPECT_OK(context_->LoadKernels()) << "again";
  EXPECT_OK(stream_->CopyByKernel(DeviceAddress{}, 0, kMiB));
  EXPECT_OK(stream_->CopyByKernel(DeviceAddress{}, 0, 0));
  EXPECT_OK(stream_->Synchronize());
  MoveList list;
  list.Add(1, 0, 0);
  list.Add(0, 0, 0);
  MoveHere(list);
}

TEST_F(GpuKernelContract, KernelsHaveToBeLoaded) {
  const auto other = driver_->OpenContext(0);
  ASSERT_OK(other);
  const auto stream = (*other)->NewStream();
  ASSERT_OK(stream);
  PinnedPages list(*context_, sizeof(gpu::CopyItem));
  EXPECT_FALSE((*stream)->CopyByKernel(list.base(), 1, kMiB));
  EXPECT_FALSE(stream_->CopyByKernel(list.base(), 1, 0)) << "an item of no bytes is the longest";
  EXPECT_OK(stream_->Synchronize());
}

// One place to the next, by launches and by a copy; only the last has to be waited for.
TEST_F(GpuKernelContract, WorkAfterALaunchWaitsForIt) {
  constexpr uint64_t kBlock = 8 * kKiB;
  constexpr uint64_t kBlocks = 2048;
  constexpr uint64_t kBytes = kBlock * kBlocks;
  std::vector<Place> places;
  for (int i = 0; i < 5; ++i)
    places.push_back({Make(MemoryOrigin::kDevice, kBytes), context_.get()});
  PinnedPages lists(*context_, 4 * kBlocks * sizeof(gpu::CopyItem));
  const std::vector<uint8_t> sent = RandomBytes(kBytes, 3);
  places.front().Write(sent);
  for (size_t i = 0; i + 1 < places.size(); ++i) {
    if (i == 2) {
      EXPECT_OK(stream_->Copy(places[3].range.base, places[2].range.base, kBytes));
      continue;
    }
    std::vector<Move> moves;
    for (uint64_t block = 0; block < kBlocks; ++block)
      moves.push_back({block * kBlock, block * kBlock, kBlock});
    std::shuffle(moves.begin(), moves.end(), std::mt19937(static_cast<uint32_t>(i)));
    const auto items = ItemsOf(moves, places[i + 1], places[i]);
    const uint64_t offset = i * kBlocks * sizeof(gpu::CopyItem);
    std::memcpy(lists.data() + offset, items.data(), items.size() * sizeof(gpu::CopyItem));
    EXPECT_OK(stream_->CopyByKernel(lists.base() + offset, kBlocks, kBlock));
  }
  EXPECT_OK(stream_->Synchronize());
  EXPECT_EQ(DifferenceOf(places.back().Read(), sent), "");
}

TEST_F(GpuKernelContract, AListIsFreeAgainBehindItsMark) {
  constexpr uint64_t kBytes = 256 * kKiB;
  const Place source = {Make(MemoryOrigin::kDevice, 32 * kBytes), context_.get()};
  const Place target = {Make(MemoryOrigin::kDevice, 32 * kBytes), context_.get()};
  const std::vector<uint8_t> sent = RandomBytes(32 * kBytes, 3);
  source.Write(sent);
  target.Write(RandomBytes(32 * kBytes, 4));
  auto event = context_->NewEvent();
  ASSERT_OK(event);
  PinnedPages list(*context_, sizeof(gpu::CopyItem));
  for (uint64_t round = 0; round < 32; ++round) {
    const gpu::CopyItem item = {target.range.base + round * kBytes,
                                source.range.base + round * kBytes, kBytes};
    std::memcpy(list.data(), &item, sizeof(item));
    EXPECT_OK(stream_->CopyByKernel(list.base(), 1, kBytes));
    EXPECT_OK(stream_->Record(**event));
    EXPECT_OK((*event)->Wait());
  }
  EXPECT_EQ(DifferenceOf(target.Read(), sent), "");
}

TEST_F(GpuKernelContract, ACaptureOfTheWorkloadIsNotDisturbedByKernels) {
  const auto other = driver_->OpenContext(0);
  ASSERT_OK(other);
  const Place source = {Make(MemoryOrigin::kDevice, kMiB), context_.get()};
  const Place target = {Make(MemoryOrigin::kDevice, kMiB), context_.get()};
  ASSERT_OK(allocations_->BeginCapture());
  EXPECT_OK((*other)->LoadKernels());
  MoveAndCompare(**other, {{0, 0, kMiB}}, target, source);
  EXPECT_OK(allocations_->EndCapture());
}

}  // namespace
}  // namespace gantry::testing
