// Allocations are counted: invariant 3, and how many buffers there may be.
#include <gmock/gmock.h>

#include <thread>

#include "tests/sidecar/registry/registry_fixture.h"

namespace gantry::registry {
namespace {

using AllocationSharingTest = RegistryFixture;

// Invariant 3.
TEST_F(AllocationSharingTest, OverlappingAndEqualViewsShareOneMappingAndTheLastUnmapsIt) {
  wire::RegistrationRequest request = RequestOver({{Memory(kMiB), kMiB}});
  request.buffers = {View("low", {{0, 0, 8192}}), View("equal", {{0, 0, 8192}}),
                     View("overlapping", {{0, 4096, 8192}}), View("whole", {{0, 0, kMiB}})};
  const auto buffers = registry_.Register(request);
  ASSERT_TRUE(buffers);
  EXPECT_EQ(mapper_.maps(), 1);
  EXPECT_EQ(registry_.Totals().allocations, 1u);
  EXPECT_EQ(registry_.Totals().mapped_bytes, kMiB);
  EXPECT_EQ(registry_.Totals().registered_bytes, 3 * 8192 + kMiB);
  for (size_t i = 0; i < buffers->size(); ++i) {
    EXPECT_EQ(mapper_.live(), 1u) << i;
    EXPECT_EQ((*buffers)[i]->description().allocation_ids,
              (*buffers)[0]->description().allocation_ids);
    EXPECT_TRUE(registry_.Remove((*buffers)[i]->description().id, Later()));
  }
  EXPECT_EQ(mapper_.live(), 0u);
  EXPECT_EQ(mapper_.unmaps(), 1);
  EXPECT_EQ(registry_.Totals().buffers, 0u);
  EXPECT_EQ(registry_.Totals().mapped_bytes, 0u);
}

TEST_F(AllocationSharingTest, DescriptorsOfOneFileAreOneAllocation) {
  const UniqueFd memory = MakeMemfd(kMiB);
  wire::RegistrationRequest request = RequestOver({{HandOver(owner_, *memory.Duplicate()), kMiB},
                                                   {HandOver(owner_, *memory.Duplicate()), kMiB}});
  request.buffers = {View("a", {{0, 0, 64}}), View("b", {{1, 0, 64}, {0, 64, 64}})};
  ASSERT_TRUE(registry_.Register(request));
  EXPECT_EQ(mapper_.maps(), 1);
}

TEST_F(AllocationSharingTest, ReadOnlyAndWritableDescriptorsOfOneFileAreTwoMappings) {
  const UniqueFd memory = MakeMemfd(kMiB);
  wire::RegistrationRequest request =
      RequestOver({{HandOver(owner_, *memory.Duplicate()), kMiB},
                   {HandOver(owner_, ReopenReadOnly(memory)), kMiB}});
  request.buffers = {View("w", {{0, 0, 64}}), View("r", {{1, 0, 64}})};
  const auto buffers = registry_.Register(request);
  ASSERT_TRUE(buffers);
  EXPECT_EQ(mapper_.maps(), 2);
  EXPECT_TRUE((*buffers)[0]->Acquire()->allocations()[0]->writable());
  EXPECT_FALSE((*buffers)[1]->Acquire()->allocations()[0]->writable());
}

TEST_F(AllocationSharingTest, TheDescriptorStaysForTheAllocationWhenItsTokenIsReleased) {
  const std::string token = Memory(kMiB);
  wire::RegistrationRequest request = RequestOver({{token, kMiB}});
  request.buffers = {View("k", {{0, 0, 64}})};
  const auto buffers = registry_.Register(request);
  ASSERT_TRUE(buffers);
  ASSERT_TRUE(workloads_.ReleaseFds(owner_.name, owner_.generation, {token}));
  EXPECT_EQ(workloads_.Get(owner_.name)->fds_held, 1u);
  {
    const auto use = (*buffers)[0]->Acquire();
    EXPECT_GE(::fcntl(use->allocations()[0]->fd()->get(), F_GETFD), 0);
  }
  EXPECT_TRUE(registry_.Remove((*buffers)[0]->description().id, Later()));
  EXPECT_EQ(workloads_.Get(owner_.name)->fds_held, 0u);
}

// Single flight: while one thread maps, the others wait for that mapping.
TEST_F(AllocationSharingTest, ConcurrentRegistrationsMapAnAllocationOnce) {
  mapper_.SetMapTime(milliseconds(20));
  const std::string token = Memory(kMiB);
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      wire::RegistrationRequest request = RequestOver({{token, kMiB}});
      request.buffers = {View("k" + std::to_string(i), {{0, i * 64, 64}})};
      EXPECT_TRUE(registry_.Register(request));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(mapper_.maps(), 1);
  EXPECT_EQ(registry_.Totals().buffers, 8u);
}

TEST_F(AllocationSharingTest, ConcurrentRegistrationsOfOneNameAnswerOneBuffer) {
  mapper_.SetMapTime(milliseconds(5));
  const std::string token = Memory(kMiB);
  std::vector<std::shared_ptr<Buffer>> answers(8);
  std::vector<std::thread> threads;
  for (auto& answer : answers) {
    threads.emplace_back([&] {
      wire::RegistrationRequest request = RequestOver({{token, kMiB}});
      request.buffers = {View("k", {{0, 0, 64}})};
      const auto buffers = registry_.Register(request);
      ASSERT_TRUE(buffers);
      answer = buffers->front();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(answers, ::testing::Each(answers.front()));
  EXPECT_EQ(registry_.Totals().buffers, 1u);
  answers.clear();
  EXPECT_TRUE(registry_.RemoveAll(owner_.name, 0, Later()));
  EXPECT_EQ(mapper_.live(), 0u);
}

TEST_F(AllocationSharingTest, FailedMappingIsTriedAgainByThoseWhoWaitedForIt) {
  mapper_.SetMapTime(milliseconds(20));
  mapper_.FailMap(1);
  const std::string token = Memory(kMiB);
  std::atomic<int> failures = 0;
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      wire::RegistrationRequest request = RequestOver({{token, kMiB}});
      request.buffers = {View("k" + std::to_string(i), {{0, 0, 64}})};
      if (!registry_.Register(request)) ++failures;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 1);
  EXPECT_EQ(mapper_.maps(), 2);
  EXPECT_EQ(mapper_.live(), 1u);
}

TEST_F(AllocationSharingTest, RegisteringAndRemovingAtOnceLeavesNothing) {
  const std::string token = Memory(kMiB);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < 200; ++round) {
        wire::RegistrationRequest request = RequestOver({{token, kMiB}});
        request.buffers = {View("own" + std::to_string(t), {{0, 0, 64}}),
                           View("shared", {{0, 64, 64}})};
        const auto buffers = registry_.Register(request);
        if (!buffers) continue;  // "shared" went away under it
        const auto use = (*buffers)[0]->Acquire();
        EXPECT_TRUE(use && mapper_.IsLive(use->allocations()[0]->mapping()));
        const auto removed = registry_.Remove((*buffers)[1]->description().id, Later());
        EXPECT_TRUE(removed || removed.error().code == ErrorCode::kNotFound);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(registry_.RemoveAll(owner_.name, 0, Later()));
  EXPECT_EQ(mapper_.live(), 0u);
  EXPECT_EQ(mapper_.maps(), mapper_.unmaps());
  EXPECT_EQ(registry_.Totals().buffers, 0u);
}

TEST_F(AllocationSharingTest, TenThousandViewsInAFewCallsShareOneMapping) {
  constexpr uint32_t kCalls = 10;
  constexpr uint32_t kViews = 1000;
  const std::string token = Memory(kMiB);
  for (uint32_t call = 0; call < kCalls; ++call) {
    wire::RegistrationRequest request = RequestOver({{token, kMiB}});
    for (uint32_t i = 0; i < kViews; ++i) {
      const uint32_t number = call * kViews + i;
      request.buffers.push_back(View("layer." + std::to_string(number), {{0, number * 64, 64}}));
      request.buffers.back().layout = wire::BlockLayout{16, 16, 4};
    }
    ASSERT_TRUE(registry_.Register(request));
  }
  EXPECT_EQ(mapper_.maps(), 1);

  const auto use = registry_.Acquire(owner_.name, "layer.7777", 0);
  ASSERT_TRUE(use);
  EXPECT_EQ(use->buffer().description().pieces.Locate(0, 1).offset, 7777u * 64);
  // Pages of the list do not repeat and miss nothing.
  std::string cursor;
  size_t listed = 0;
  while (true) {
    const auto page = registry_.List(owner_.name, cursor, 999);
    if (page.empty()) break;
    EXPECT_LT(cursor, page.front()->description().id);
    listed += page.size();
    cursor = page.back()->description().id;
  }
  EXPECT_EQ(listed, kCalls * kViews);
  EXPECT_EQ(registry_.List("", "", 100'000).size(), kCalls * kViews);
  EXPECT_TRUE(registry_.List("nobody", "", 10).empty());
}

}  // namespace
}  // namespace gantry::registry
