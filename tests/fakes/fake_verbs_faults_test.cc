// Limits, failures on demand, memory behind a dma-buf, and orders that hardware may choose.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <set>

#include "tests/fakes/fake_verbs_fixture.h"

namespace gantry::testing {
namespace {

using transport::RegionAccess;
using transport::WorkCompletion;
using transport::WorkItem;
using transport::WorkStatus;

class FakeVerbsFaultsTest : public FakeVerbsFixture {};

TEST_F(FakeVerbsFaultsTest, LimitsOfTheDeviceAreKept) {
  FakeDeviceOptions options = {.name = "small"};
  options.limits.region_bytes_max = 4096;
  options.limits.regions_max = 2;
  options.limits.queue_pairs_max = 1;
  options.limits.work_requests_max = 16;
  options.limits.completions_max = 8;
  FakeVerbs host(fabric_, {options});
  std::vector<std::byte> memory(8192);
  const std::span<std::byte> all(memory);
  const auto device = *host.Open("small", 1);
  EXPECT_FALSE(device->Register(all.first(4097), kFullAccess));
  EXPECT_FALSE(device->Register(all.first(0), kFullAccess));
  auto first = *device->Register(all.first(4096), kFullAccess);
  const auto second = *device->Register(all.first(4096), kFullAccess);
  const auto third = device->Register(all.first(1), kFullAccess);
  ASSERT_FALSE(third);
  EXPECT_EQ(third.error().code, ErrorCode::kResourceExhausted);
  first.reset();
  EXPECT_TRUE(device->Register(all.first(1), kFullAccess));

  EXPECT_FALSE(device->CreateCompletionQueue(9));
  const auto queue = *device->CreateCompletionQueue(8);
  auto many = Options();
  many.work_requests = 17;
  EXPECT_FALSE(device->CreateQueuePair(*queue, many));
  const auto pair = *device->CreateQueuePair(*queue, Options());
  EXPECT_FALSE(device->CreateQueuePair(*queue, Options()));
  EXPECT_EQ(host.live(), (FakeLive{1, 1, 1, 1}));
}

TEST_F(FakeVerbsFaultsTest, EveryCallFailsWhenToldTo) {
  std::vector<std::byte> memory(64);
  one_.FailCall("", FakeCall::kDevices, 2, EIO);
  EXPECT_TRUE(one_.Devices());
  EXPECT_FALSE(one_.Devices());
  EXPECT_TRUE(one_.Devices());
  one_.FailCalls("a0", FakeCall::kOpen, EACCES);
  EXPECT_FALSE(one_.Open("a0", 1));
  EXPECT_TRUE(one_.Open("a1", 1));
  one_.FailCalls("a0", FakeCall::kOpen, 0);

  const auto end = MakeEnd(one_, "a0", 0);
  for (const FakeCall call :
       {FakeCall::kPort, FakeCall::kRegister, FakeCall::kCreateCompletionQueue,
        FakeCall::kCreateQueuePair, FakeCall::kConnect, FakeCall::kFail, FakeCall::kArm}) {
    one_.FailCall("a0", call, 1, ENOMEM);
  }
  EXPECT_FALSE(end->device->Port());
  EXPECT_TRUE(end->device->Port());
  const auto region = end->device->Register(memory, kFullAccess);
  ASSERT_FALSE(region);
  EXPECT_EQ(region.error().message, "a0: registering memory: Cannot allocate memory");
  EXPECT_FALSE(end->device->CreateCompletionQueue(8));
  EXPECT_FALSE(end->device->CreateQueuePair(*end->queue, Options()));
  EXPECT_FALSE(end->pair->Connect(end->Address(), end->Address(), Options()));
  EXPECT_FALSE(end->pair->Fail());
  EXPECT_FALSE(end->queue->Arm());
  EXPECT_EQ(one_.live(), (FakeLive{1, 1, 1, 1})) << "what failed made nothing";

  ASSERT_TRUE(end->pair->Connect(end->Address(), end->Address(), Options()));
  one_.FailCall("a0", FakeCall::kPost, 3, EFAULT);
  const WorkItem item = Write(1, *end, 0, 8, *end, 8);
  int error_number = 0;
  EXPECT_EQ(Post(*end, {item, item, item, item}, &error_number), 2u);
  EXPECT_EQ(error_number, EFAULT);
  one_.FailWork("a0", 2, WorkStatus::kGeneral);
  const std::vector<WorkCompletion> done = end->Poll();
  ASSERT_EQ(done.size(), 2u);
  EXPECT_EQ(done[0].status, WorkStatus::kSuccess);
  EXPECT_EQ(done[1].status, WorkStatus::kGeneral);
  one_.FailCall("a0", FakeCall::kPoll, 1, EIO);
  WorkCompletion completion;
  EXPECT_LT(end->queue->Poll({&completion, 1}), 0);
}

TEST_F(FakeVerbsFaultsTest, ARegionThatCannotBeDeregisteredStaysAndIsNotReached) {
  const auto a = MakeEnd(one_, "a0", 0xaa);
  const auto b = MakeEnd(two_, "b0", 0xbb);
  Connect(*a, *b);
  two_.FailCall("b0", FakeCall::kDeregister, 1, EBUSY);
  const WorkItem item = Write(1, *a, 0, 8, *b, 0);
  EXPECT_FALSE(b->region->Deregister());
  b->region.reset();
  EXPECT_EQ(two_.live().regions, 1);
  EXPECT_EQ(Post(*a, {item}), 1u);
  EXPECT_EQ(a->Poll().at(0).status, WorkStatus::kRemoteAccess);
}

TEST_F(FakeVerbsFaultsTest, DmabufsAreFilesWhereADeviceTakesThem) {
  const UniqueFd file(::memfd_create("dmabuf", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(file.get(), 16384), 0);
  const auto plain = MakeEnd(one_, "a0", 0xaa);
  EXPECT_FALSE(plain->device->RegisterDmabuf(file.get(), 4096, 8192, 0x700000000000, kFullAccess));
  EXPECT_EQ(one_.live().regions, 1);

  FakeVerbs host(fabric_, {{.name = "gpu", .dmabuf = true}});
  const auto end = MakeEnd(host, "gpu", 0xbb);
  Connect(*plain, *end);
  EXPECT_FALSE(end->device->RegisterDmabuf(file.get(), 4096, 8192, 0x700000000001, kFullAccess));
  EXPECT_FALSE(end->device->RegisterDmabuf(file.get(), 8192, 8193, 0x700000000000, kFullAccess));
  end->region = *end->device->RegisterDmabuf(file.get(), 4100, 8000, 0x700000000004, kFullAccess);
  WorkItem item = Write(1, *plain, 0, 10, *end, 0);
  item.remote_address = 0x700000000004 + 7990;
  EXPECT_EQ(Post(*plain, {item}), 1u);
  EXPECT_EQ(plain->Poll().at(0).status, WorkStatus::kSuccess);
  uint8_t seen[12] = {};
  ASSERT_EQ(::pread(file.get(), seen, sizeof(seen), 4100 + 7989), 12);
  EXPECT_TRUE(seen[0] == 0 && seen[1] == 0xaa && seen[10] == 0xaa && seen[11] == 0);
}

TEST_F(FakeVerbsFaultsTest, StepsCarryOutOneAtATimeInTheOrderOfPosting) {
  const auto a = MakeEnd(one_, "a0", 0xaa);
  const auto b = MakeEnd(two_, "b0", 0xbb);
  Connect(*a, *b);
  fabric_.SetProgress(FakeFabric::Progress::kByStep);
  EXPECT_EQ(Post(*b, {Read(1, *b, 0, 8, *a, 0)}), 1u);
  EXPECT_EQ(Post(*a, {Write(2, *a, 0, 8, *b, 64)}), 1u);
  EXPECT_TRUE(b->Poll().empty() && a->Poll().empty());
  EXPECT_TRUE(fabric_.Step());
  EXPECT_TRUE(b->Holds(0, 8, 0xaa) && b->Holds(64, 8, 0xbb));
  fabric_.StepAll();
  EXPECT_TRUE(b->Holds(64, 8, 0xaa));
  EXPECT_FALSE(fabric_.Step());
}

// Which queue pair each completion came from, of eight posted to each of two.
std::vector<uint64_t> OrderOf(uint64_t seed, FakeFabric& fabric, const VerbsEnd& a,
                              const VerbsEnd& b, const WorkItem& from_a, const WorkItem& from_b) {
  fabric.Scramble(seed);
  int error_number = 0;
  std::vector<uint64_t> order;
  for (uint64_t i = 0; i < 8; ++i) {
    WorkItem items[] = {from_a, from_b};
    items[0].id = i;
    items[1].id = 100 + i;
    a.pair->Post({&items[0], 1}, &error_number);
    b.pair->Post({&items[1], 1}, &error_number);
  }
  WorkCompletion completion;
  while (a.queue->Poll({&completion, 1}) == 1) order.push_back(completion.id);
  return order;
}

TEST_F(FakeVerbsFaultsTest, ScrambledQueuePairsTakeTurnsAtRandomAndEachStaysInOrder) {
  const auto a = MakeEnd(one_, "a0", 0xaa);
  auto second = std::make_unique<VerbsEnd>(uint8_t{0xcc});
  const auto b = MakeEnd(two_, "b0", 0xbb);
  const auto d = MakeEnd(two_, "b0", 0xdd);
  auto other = *a->device->CreateQueuePair(*a->queue, Options());
  Connect(*a, *b);
  std::swap(a->pair, other);
  Connect(*a, *d);
  std::swap(a->pair, second->pair);
  std::swap(a->pair, other);
  const auto order = [&](uint64_t seed) {
    return OrderOf(seed, fabric_, *a, *second, Write(0, *a, 0, 8, *b, 0),
                   Write(0, *a, 0, 8, *d, 0));
  };
  std::set<std::vector<uint64_t>> orders;
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    const std::vector<uint64_t> each = order(seed);
    ASSERT_EQ(each.size(), 16u);
    EXPECT_EQ(each, order(seed)) << "the same seed, the same order";
    uint64_t next_of_a = 0;
    uint64_t next_of_second = 100;
    for (const uint64_t id : each) EXPECT_EQ(id, id < 100 ? next_of_a++ : next_of_second++);
    orders.insert(each);
  }
  EXPECT_GT(orders.size(), 4u);
  second->pair.reset();
}

TEST_F(FakeVerbsFaultsTest, RelaxedOrderingShowsBytesLateUntilARead) {
  const auto a = MakeEnd(one_, "a0", 0xaa);
  const auto b = MakeEnd(two_, "b0", 0xbb, {true, true, true, true});
  Connect(*a, *b);
  bool was_late = false;
  std::set<std::string> partial;
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    fabric_.Scramble(seed);
    std::memset(b->memory.data(), 0xbb, b->memory.size());
    std::vector<WorkItem> items;
    for (uint64_t i = 0; i < 8; ++i) items.push_back(Write(i, *a, 0, 64, *b, i * 64));
    EXPECT_EQ(Post(*a, items), 8u);
    EXPECT_EQ(a->Poll().size(), 8u);
    was_late = was_late || fabric_.late_writes() != 0;
    std::string seen;
    for (size_t i = 0; i < 8; ++i) seen += b->Holds(i * 64, 64, 0xaa) ? 'x' : '.';
    partial.insert(seen);
    EXPECT_EQ(Post(*a, {Read(9, *a, 8192, 1, *b, 16000)}), 1u);
    EXPECT_EQ(a->Poll().size(), 1u);
    EXPECT_TRUE(b->Holds(0, 512, 0xaa)) << "a read pushes them out";
    EXPECT_EQ(fabric_.late_writes(), 0u);
  }
  EXPECT_TRUE(was_late);
  EXPECT_TRUE(std::any_of(partial.begin(), partial.end(), [](const std::string& seen) {
    return seen.find(".x") != std::string::npos;
  })) << "a later one may show first";
}

TEST_F(FakeVerbsFaultsTest, LateBytesComeBeforeTheRegionOrTheQueuePairGoesAndNotWithoutRelaxing) {
  fabric_.Scramble(3);
  for (const bool deregister : {true, false}) {
    const auto a = MakeEnd(one_, "a0", 0xaa);
    const auto b = MakeEnd(two_, "b0", 0xbb, {true, true, true, true});
    Connect(*a, *b);
    fabric_.SetProgress(FakeFabric::Progress::kOnPoll);
    EXPECT_EQ(Post(*a, std::vector<WorkItem>(8, Write(1, *a, 0, 64, *b, 0))), 8u);
    EXPECT_EQ(a->Poll().size(), 8u);
    if (deregister) {
      ASSERT_TRUE(b->region->Deregister());
      b->region.reset();
    } else {
      b->pair.reset();
    }
    EXPECT_EQ(fabric_.late_writes(), 0u);
    EXPECT_TRUE(b->Holds(0, 64, 0xaa));
  }
  const auto a = MakeEnd(one_, "a0", 0xaa);
  const auto b = MakeEnd(two_, "b0", 0xbb);
  Connect(*a, *b);
  EXPECT_EQ(Post(*a, {Write(1, *a, 0, 64, *b, 0)}), 1u);
  EXPECT_EQ(a->Poll().size(), 1u);
  EXPECT_TRUE(b->Holds(0, 64, 0xaa));
}

}  // namespace
}  // namespace gantry::testing
