// What is written and read, what is said about it and when.
#include <cerrno>
#include <random>
#include <set>

#include "tests/contracts/verbs_contract.h"

namespace gantry::testing {
namespace {

using ::testing::ElementsAre;
using transport::WorkCompletion;
using transport::WorkItem;
using transport::WorkOperation;
using transport::WorkStatus;

TEST_P(VerbsContract, WritesAndReadsMoveExactlyTheirBytes) {
  std::mt19937 random(7);
  for (VerbsEnd* end : {a_.get(), b_.get()}) {
    for (std::byte& each : end->memory) each = static_cast<std::byte>(random());
  }
  std::vector<std::byte> here = a_->memory;
  std::vector<std::byte> there = b_->memory;
  uint64_t id = 0;
  for (const uint32_t length : {1U, 2U, 777U, 4095U, 4096U, 4097U, 9001U, 16384U}) {
    for (const bool from_b : {false, true}) {
      const VerbsEnd& local = from_b ? *b_ : *a_;
      const VerbsEnd& remote = from_b ? *a_ : *b_;
      std::vector<std::byte>& local_model = from_b ? there : here;
      std::vector<std::byte>& remote_model = from_b ? here : there;
      for (const auto operation : {WorkOperation::kWrite, WorkOperation::kRead}) {
        const size_t from = random() % (VerbsEnd::kBytes - length + 1);
        const size_t to = random() % (VerbsEnd::kBytes - length + 1);
        if (operation == WorkOperation::kWrite) {
          std::copy_n(&local_model[from], length, &remote_model[to]);
        } else {
          std::copy_n(&remote_model[to], length, &local_model[from]);
        }
        ExpectDone(local, Item(++id, operation, local, from, length, remote, to));
        ASSERT_TRUE(a_->memory == here && b_->memory == there) << length << " bytes";
        ASSERT_FALSE(HasFailure());
      }
    }
  }
  EXPECT_TRUE(a_->Poll().empty() && b_->Poll().empty()) << "a target hears nothing of it";
}

TEST_P(VerbsContract, AReadBehindAWriteSeesIt) {
  for (size_t i = 0; i < 8; ++i) {
    const size_t at = i * 1000;
    EXPECT_EQ(Post(*a_, {Silent(Write(1, *a_, 0, 1000, *b_, at)), Read(2, *a_, 8192, 1, *b_, 16000),
                         Read(3, *a_, 9000, 1000, *b_, at)}),
              3u);
    EXPECT_THAT(a_->Await(2), ElementsAre(Completed(2, WorkStatus::kSuccess),
                                          Completed(3, WorkStatus::kSuccess)));
    EXPECT_TRUE(a_->Holds(9000, 1000, kHere));
    EXPECT_TRUE(b_->Holds(at, 1000, kHere));
    ASSERT_FALSE(HasFailure());
  }
}

TEST_P(VerbsContract, ABatchIsCompletedInItsOrderByThoseThatAreSignalled) {
  constexpr uint64_t kItems = 150;
  a_->pair.reset();
  a_->options.work_requests = kItems;
  a_->pair = *a_->device->CreateQueuePair(*a_->queue, a_->options);
  b_ = There();
  Connect(*a_, *b_);
  std::vector<WorkItem> items;
  std::vector<uint64_t> signalled;
  for (uint64_t i = 0; i < kItems; ++i) {
    const size_t at = i * 50;
    items.push_back(i % 3 == 1 ? Read(i, *a_, 8192 + at, 40, *b_, 8192 + at)
                               : Write(i, *a_, at, 40, *b_, at));
    items.back().signalled = i % 7 == 3 || i + 1 == kItems;
    if (items.back().signalled) signalled.push_back(i);
  }
  int error_number = -1;
  EXPECT_EQ(Post(*a_, items, &error_number), kItems);
  EXPECT_EQ(error_number, 0);
  std::vector<uint64_t> completed;
  for (const WorkCompletion& each : a_->Await(signalled.size())) {
    EXPECT_EQ(each.status, WorkStatus::kSuccess);
    EXPECT_EQ(each.queue_pair, a_->pair->number());
    completed.push_back(each.id);
  }
  EXPECT_EQ(completed, signalled);
  for (uint64_t i = 0; i < kItems; ++i) {
    const size_t at = i * 50;
    EXPECT_TRUE(b_->Holds(at, 40, i % 3 == 1 ? kThere : kHere)) << i;
    EXPECT_TRUE(a_->Holds(8192 + at, 40, i % 3 == 1 ? kThere : kHere)) << i;
    EXPECT_TRUE(b_->Holds(at + 40, 10, kThere) && a_->Holds(8192 + at + 40, 10, kHere)) << i;
  }
  SleepShortly();
  EXPECT_TRUE(a_->Poll().empty());
}

TEST_P(VerbsContract, ThereIsRoomAgainWhenALaterOneHasBeenPolled) {
  std::vector<WorkItem> batch(kRoom - 1, Silent(Write(1, *a_, 0, 8, *b_, 0)));
  for (uint64_t round = 2; round < 12; ++round) {
    EXPECT_EQ(Post(*a_, batch), kRoom - 1);
    EXPECT_EQ(Post(*a_, {Write(round, *a_, 0, 8, *b_, 0)}), 1u);
    EXPECT_THAT(a_->Await(1), ElementsAre(Completed(round, WorkStatus::kSuccess)));
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_TRUE(b_->Holds(0, 8, kHere));
}

// As much as it was asked for is less than soft-RoCE takes, and than other devices do.
TEST_P(VerbsContract, AnInlinedWriteIsReadWhenItIsPostedAndNeedsNoKey) {
  constexpr uint32_t kInline = 100;
  a_->pair.reset();
  a_->options.inline_bytes = kInline;
  a_->pair = *a_->device->CreateQueuePair(*a_->queue, a_->options);
  ASSERT_GE(a_->pair->inline_bytes(), kInline);
  b_ = There();
  Connect(*a_, *b_);
  for (const uint32_t length : {1U, kInline, a_->pair->inline_bytes()}) {
    std::vector<WorkItem> items(8, Silent(Write(1, *a_, 4096, 8192, *b_, 4096)));
    items.push_back(Write(2, *a_, 0, length, *b_, 1000));
    items.back().inlined = true;
    items.back().local_key = 0;
    ASSERT_EQ(Post(*a_, items), items.size());
    std::fill_n(a_->memory.begin(), length, std::byte{0x11});
    ASSERT_THAT(a_->Await(1), ElementsAre(Completed(2, WorkStatus::kSuccess))) << length;
    EXPECT_TRUE(b_->Holds(1000, length, kHere)) << length;
    EXPECT_TRUE(b_->Holds(0, 1000, kThere) && b_->Holds(1000 + length, 512, kThere)) << length;
    std::fill_n(a_->memory.begin(), length, std::byte{kHere});
    std::fill_n(b_->memory.begin() + 1000, length, std::byte{kThere});
  }
}

TEST_P(VerbsContract, WhatIsTooLongToBeInlinedIsNotTaken) {
  a_->pair.reset();
  a_->options.inline_bytes = 100;
  a_->pair = *a_->device->CreateQueuePair(*a_->queue, a_->options);
  b_ = There();
  Connect(*a_, *b_);
  WorkItem longer = Write(2, *a_, 0, a_->pair->inline_bytes() + 1, *b_, 1000);
  longer.inlined = true;
  int error_number = 0;
  EXPECT_EQ(Post(*a_, {Write(1, *a_, 0, 8, *b_, 0), longer}, &error_number), 1u);
  EXPECT_THAT(error_number, ::testing::AnyOf(EINVAL, ENOMEM));
  EXPECT_THAT(a_->Await(1), ElementsAre(Completed(1, WorkStatus::kSuccess)));
  longer.inlined = false;
  ExpectDone(*a_, longer);
}

TEST_P(VerbsContract, WhereNoneAsLongAsAskedForCanBeInlinedThereIsAQueuePairAllTheSame) {
  constexpr uint32_t kTooLong = 1 << 20;
  a_->pair.reset();
  a_->options.inline_bytes = kTooLong;
  auto made = a_->device->CreateQueuePair(*a_->queue, a_->options);
  ASSERT_TRUE(made) << made.error().message;
  a_->pair = *std::move(made);
  EXPECT_LT(a_->pair->inline_bytes(), kTooLong);
  b_ = There();
  Connect(*a_, *b_);
  ExpectDone(*a_, Write(1, *a_, 0, 5000, *b_, 0));
}

// Devices may have more room than they were asked for.
TEST_P(VerbsContract, WhatThereIsNoRoomForIsNotTaken) {
  constexpr size_t kMany = 60;
  std::vector<WorkItem> items;
  for (uint64_t i = 0; i < kMany; ++i) items.push_back(Write(i, *a_, 0, 8, *b_, i * 8));
  int error_number = 0;
  const size_t taken = Post(*a_, items, &error_number);
  ASSERT_GE(taken, kRoom);
  ASSERT_LT(taken, kMany);
  EXPECT_EQ(error_number, ENOMEM);
  const std::vector<WorkCompletion> done = a_->Await(taken);
  ASSERT_EQ(done.size(), taken);
  for (uint64_t i = 0; i < taken; ++i) {
    EXPECT_THAT(done[i], Completed(i, WorkStatus::kSuccess));
  }
  EXPECT_TRUE(b_->Holds(0, taken * 8, kHere));
  EXPECT_TRUE(b_->Holds(taken * 8, (kMany - taken) * 8, kThere));
  ExpectDone(*a_, items.back());
}

TEST_P(VerbsContract, QueuePairsOfOneQueueAreToldApart) {
  const auto other = a_->device->CreateQueuePair(*a_->queue, a_->options);
  ASSERT_TRUE(other);
  const auto c = There();
  ASSERT_TRUE((*other)->Connect(a_->AddressOf(**other), c->Address(), a_->options));
  ASSERT_TRUE(c->pair->Connect(c->Address(), a_->AddressOf(**other), c->options));
  int error_number = 0;
  for (uint64_t i = 0; i < 8; ++i) {
    const WorkItem item = Write(100 + i, *a_, 0, 8, *c, i * 8);
    EXPECT_EQ((*other)->Post({&item, 1}, &error_number), 1u);
    EXPECT_EQ(Post(*a_, {Write(i, *a_, 0, 8, *b_, i * 8)}), 1u);
  }
  uint64_t next = 0;
  uint64_t next_of_other = 100;
  const std::vector<WorkCompletion> done = a_->Await(16);
  ASSERT_EQ(done.size(), 16u);
  for (const WorkCompletion& each : done) {
    const bool is_other = each.queue_pair == (*other)->number();
    EXPECT_TRUE(is_other || each.queue_pair == a_->pair->number());
    EXPECT_THAT(each, Completed(is_other ? next_of_other++ : next++, WorkStatus::kSuccess));
  }
  EXPECT_TRUE(b_->Holds(0, 64, kHere) && c->Holds(0, 64, kHere));
}

TEST_P(VerbsContract, APollTakesOutNoMoreThanFit) {
  EXPECT_EQ(Post(*a_, std::vector<WorkItem>(5, Write(1, *a_, 0, 8, *b_, 0))), 5u);
  std::vector<WorkCompletion> guarded(4);
  guarded[2].id = guarded[3].id = 99;
  int all = 0;
  const TimePoint limit = Clock::now() + milliseconds(5'000);
  while (all < 5 && Clock::now() < limit) {
    const int taken = a_->queue->Poll(std::span(guarded).first(2));
    ASSERT_GE(taken, 0);
    ASSERT_LE(taken, 2);
    all += taken;
  }
  EXPECT_EQ(all, 5);
  EXPECT_EQ(guarded[2].id, 99u);
  EXPECT_EQ(guarded[3].id, 99u);
  EXPECT_EQ(a_->queue->Poll(guarded), 0);
}

TEST_P(VerbsContract, AnArmedQueueSaysSoOnceAtItsNextCompletion) {
  const auto await = [this] {
    return AwaitInput(a_->queue->fd(), Clock::now() + milliseconds(5'000));
  };
  const WorkItem item = Write(1, *a_, 0, 8, *b_, 0);
  ExpectDone(*a_, item);
  SleepShortly();
  EXPECT_FALSE(IsReadable(a_->queue->fd())) << "nobody armed it";

  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE(a_->queue->Arm());
    EXPECT_EQ(Post(*a_, {Silent(item)}), 1u);
    SleepShortly();
    EXPECT_FALSE(IsReadable(a_->queue->fd())) << "what is silent is no completion";
    EXPECT_EQ(Post(*a_, {item, item}), 2u);
    EXPECT_TRUE(await());
    a_->queue->TakeEvents();
    EXPECT_EQ(a_->Await(2).size(), 2u);
    ExpectDone(*a_, item);
    SleepShortly();
    EXPECT_FALSE(IsReadable(a_->queue->fd())) << "it was armed once";
    a_->queue->TakeEvents();
  }

  // Also for what is flushed.
  ASSERT_TRUE(a_->pair->Fail());
  ASSERT_TRUE(a_->queue->Arm());
  EXPECT_EQ(Post(*a_, {Silent(item)}), 1u);
  EXPECT_TRUE(await());
  EXPECT_THAT(a_->Await(1), ElementsAre(Completed(1, WorkStatus::kFlushed)));
}

TEST_P(VerbsContract, WhatIsWrittenWithRelaxedOrderingIsThereBehindARead) {
  Reconnect({true, true, true, true});
  for (uint64_t round = 0; round < 4; ++round) {
    const size_t at = round * 1024;
    for (uint64_t i = 0; i < 8; ++i) {
      EXPECT_EQ(Post(*a_, {Write(i, *a_, 0, 128, *b_, at + i * 128)}), 1u);
    }
    EXPECT_EQ(a_->Await(8).size(), 8u);
    ExpectDone(*a_, Read(9, *a_, 8192, 8, *b_, 16000));
    EXPECT_TRUE(b_->Holds(0, at + 1024, kHere));
  }
  EXPECT_TRUE(b_->Holds(4096, VerbsEnd::kBytes - 4096, kThere));
}

}  // namespace
}  // namespace gantry::testing
