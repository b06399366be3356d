// Devices, and what is made of them: what is refused, and in which order it may go.
#include <sys/mman.h>
#include <unistd.h>

#include <set>
#include <string>

#include "tests/contracts/verbs_contract.h"
#include "tests/fakes/test_arena.h"

namespace gantry::testing {
namespace {

using transport::PortChange;
using transport::QueuePairOptions;
using transport::VerbsDevice;
using transport::VerbsLimits;
using transport::VerbsPort;
using transport::VerbsQueuePair;
using transport::VerbsRegion;
using transport::WorkItem;
using transport::WorkStatus;

TEST_P(VerbsContract, DevicesAreListedInOrderAndOpenedByTheirNames) {
  const std::vector<std::string> names = *place_->here().Devices();
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), names.size());
  EXPECT_EQ(*place_->here().Devices(), names);
  for (const std::string& name : names) {
    const auto device = place_->here().Open(name, 1);
    ASSERT_TRUE(device) << device.error().message;
    EXPECT_EQ((*device)->name(), name);
  }
  for (const char* unknown : {"", "no-such-device"}) {
    const auto refused = place_->here().Open(unknown, 1);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::kNotFound) << refused.error().message;
  }
}

TEST_P(VerbsContract, ThePortSaysHowItIsReached) {
  const Result<VerbsPort> port = a_->device->Port();
  ASSERT_TRUE(port);
  EXPECT_TRUE(port->active);
  EXPECT_THAT(port->mtu, ::testing::AnyOf(256, 512, 1024, 2048, 4096));
  EXPECT_GE(port->message_bytes_max, 1U << 20);
  std::set<int> indices;
  bool is_reached = false;
  for (const transport::GidEntry& entry : a_->device->Gids()) {
    EXPECT_TRUE(indices.insert(entry.index).second);
    if (entry.index != a_->options.gid_index) continue;
    is_reached = entry.is_here && !entry.netdev.empty() && entry.gid != transport::Gid{};
  }
  EXPECT_TRUE(is_reached);
}

TEST_P(VerbsContract, APortThatIsNotThereIsFoundOutByAskingForIt) {
  const auto device = place_->here().Open(a_->device->name(), 77);
  ASSERT_TRUE(device);
  const auto port = (*device)->Port();
  ASSERT_FALSE(port);
  EXPECT_EQ(port.error().code, ErrorCode::kDeviceError);
  EXPECT_TRUE((*device)->Gids().empty());
}

TEST_P(VerbsContract, WhereNothingHappenedThereIsNoEvent) {
  const auto device = *place_->here().Open(a_->device->name(), 1);
  EXPECT_EQ(device->NextEvent(), PortChange::kNone);
  EXPECT_FALSE(IsReadable(device->event_fd()));
  EXPECT_FALSE(IsReadable(a_->queue->fd()));
  a_->queue->TakeEvents();
  EXPECT_TRUE(a_->Poll().empty());
}

TEST_P(VerbsContract, WhatIsBeyondALimitIsRefused) {
  const VerbsLimits limits = a_->device->limits();
  EXPECT_GE(limits.region_bytes_max, 1U << 30);
  EXPECT_GT(limits.regions_max, 100U);
  EXPECT_GT(limits.queue_pairs_max, 100U);
  EXPECT_GT(limits.work_requests_max, 100U);
  EXPECT_GT(limits.completions_max, 100U);
  EXPECT_GT(limits.reads_max, 0U);
  EXPECT_GT(limits.reads_sent_max, 0U);
  EXPECT_FALSE(a_->device->CreateCompletionQueue(0));
  const auto deep = a_->device->CreateCompletionQueue(limits.completions_max + 1);
  ASSERT_FALSE(deep);
  EXPECT_THAT(deep.error().message, ::testing::StartsWith(a_->device->name() + ": "));
  QueuePairOptions options = a_->options;
  options.work_requests = limits.work_requests_max + 1;
  const auto pair = a_->device->CreateQueuePair(*a_->queue, options);
  ASSERT_FALSE(pair);
  EXPECT_THAT(pair.error().message, ::testing::StartsWith(a_->device->name() + ": "));
}

TEST_P(VerbsContract, MemoryThatIsNotThereOrNotSoIsNotRegistered) {
  EXPECT_FALSE(a_->device->Register(a_->memory, {false, true, true, false}))
      << "to be written from afar, but not at all";
  constexpr size_t kPage = 4096;
  const TestArena arena(4 * kPage);
  const UniqueFd file = arena.ReadOnlyFd();
  void* const mapped = ::mmap(nullptr, 4 * kPage, PROT_READ, MAP_SHARED, file.get(), 0);
  ASSERT_NE(mapped, MAP_FAILED);
  const std::span<std::byte> pages(static_cast<std::byte*>(mapped), 4 * kPage);
  const auto read = a_->device->Register(pages, {false, true, false, false});
  // Linux before 6.2 asks for the right to write also where nobody is to write.
  EXPECT_TRUE(read || read.error().code == ErrorCode::kDeviceError);
  const auto written = a_->device->Register(pages, {true, true, false, false});
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code, ErrorCode::kDeviceError);
  EXPECT_THAT(written.error().message, ::testing::StartsWith(a_->device->name() + ": "));
  ASSERT_EQ(::munmap(pages.subspan(2 * kPage).data(), kPage), 0);
  EXPECT_FALSE(a_->device->Register(pages, {false, true, false, false}));
  ::munmap(mapped, 2 * kPage);
  ::munmap(pages.subspan(3 * kPage).data(), kPage);
}

TEST_P(VerbsContract, EachRegionHasItsOwnKeysAlsoOfTheSameBytes) {
  std::vector<std::unique_ptr<VerbsRegion>> regions;
  std::set<uint32_t> local_keys = {a_->region->local_key()};
  std::set<uint32_t> remote_keys = {a_->region->remote_key()};
  for (int i = 0; i < 8; ++i) {
    regions.push_back(*a_->device->Register(a_->memory, kFullAccess));
    EXPECT_TRUE(local_keys.insert(regions.back()->local_key()).second);
    EXPECT_TRUE(remote_keys.insert(regions.back()->remote_key()).second);
  }
  // Also when one of them is gone.
  ASSERT_TRUE(regions[3]->Deregister());
  regions.erase(regions.begin() + 3);
  for (const auto& region : regions) {
    WorkItem item = Read(1, *b_, 0, 8, *a_, 0);
    item.remote_key = region->remote_key();
    ExpectDone(*b_, item);
  }
}

TEST_P(VerbsContract, WhereThereAreNoDmabufsOneIsRefusedSo) {
  const TestArena arena(VerbsEnd::kBytes);
  const UniqueFd file = arena.Fd();  // which is none
  const auto refused = a_->device->RegisterDmabuf(file.get(), 0, arena.size(), 0, kFullAccess);
  if (!place_->RefusesDmabufs()) GTEST_SKIP() << "a device here may take dma-bufs";
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kPathUnavailable) << refused.error().message;
}

TEST_P(VerbsContract, AQueuePairIsConnectedOnce) {
  a_ = Here();
  b_ = There();
  QueuePairOptions no_such_gid = a_->options;
  no_such_gid.gid_index = 200;
  EXPECT_FALSE(a_->pair->Connect(a_->Address(), b_->Address(), no_such_gid));
  Connect(*a_, *b_);
  EXPECT_FALSE(a_->pair->Connect(a_->Address(), b_->Address(), a_->options));
  ExpectDone(*a_, Write(1, *a_, 0, 8, *b_, 0));

  ASSERT_TRUE(a_->pair->Fail());
  EXPECT_FALSE(a_->pair->Connect(a_->Address(), b_->Address(), a_->options));
}

TEST_P(VerbsContract, BeforeItIsConnectedAQueuePairTakesNoWork) {
  const auto alone = Here();
  int error_number = 0;
  EXPECT_EQ(Post(*alone, {Write(1, *alone, 0, 8, *b_, 0)}, &error_number), 0u);
  EXPECT_NE(error_number, 0);
  EXPECT_FALSE(alone->pair->Fail());
  EXPECT_TRUE(alone->Poll().empty() && b_->HoldsOnly(kThere));
}

TEST_P(VerbsContract, NumbersOfQueuePairsThatLiveDiffer) {
  std::vector<std::unique_ptr<VerbsQueuePair>> pairs;
  std::set<uint32_t> numbers = {a_->pair->number()};
  for (int i = 0; i < 8; ++i) {
    pairs.push_back(*a_->device->CreateQueuePair(*a_->queue, a_->options));
    EXPECT_TRUE(numbers.insert(pairs.back()->number()).second);
    EXPECT_NE(pairs.back()->number(), 0u);
    EXPECT_EQ(pairs.back()->number() >> 24, 0u);
  }
  pairs.erase(pairs.begin() + 2, pairs.begin() + 5);
  for (int i = 0; i < 8; ++i)
    pairs.push_back(*a_->device->CreateQueuePair(*a_->queue, a_->options));
  numbers = {a_->pair->number()};
  for (const auto& pair : pairs) EXPECT_TRUE(numbers.insert(pair->number()).second);
  ExpectDone(*a_, Write(1, *a_, 0, 8, *b_, 0));
}

// With work in flight, completions that nobody has taken and an event that nobody has seen.
TEST_P(VerbsContract, WhatADeviceMadeGoesInAnyOrderButAQueueAfterItsQueuePairs) {
  enum class Object { kRegion, kQueue, kPair };
  const std::vector<Object> orders[] = {{Object::kPair, Object::kQueue, Object::kRegion},
                                        {Object::kPair, Object::kRegion, Object::kQueue},
                                        {Object::kRegion, Object::kPair, Object::kQueue}};
  ::testing::internal::CaptureStderr();
  for (const auto& order : orders) {
    for (const bool of_target : {false, true}) {
      Reconnect();
      ASSERT_TRUE(a_->queue->Arm());
      EXPECT_EQ(Post(*a_, {Write(1, *a_, 0, 8, *b_, 0)}), 1u);
      EXPECT_TRUE(AwaitInput(a_->queue->fd(), Clock::now() + milliseconds(5'000)));
      EXPECT_EQ(Post(*a_, std::vector<WorkItem>(8, Write(2, *a_, 0, 8192, *b_, 8192))), 8u);
      VerbsEnd& end = of_target ? *b_ : *a_;
      for (const Object object : order) {
        if (object == Object::kRegion) end.region.reset();
        if (object == Object::kQueue) end.queue.reset();
        if (object == Object::kPair) end.pair.reset();
      }
      end.device.reset();
    }
  }
  a_.reset();
  b_.reset();
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "") << "what could not be destroyed";
}

}  // namespace
}  // namespace gantry::testing
