#include "tests/fakes/fake_verbs.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest-spi.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "lib/base/poll_fd.h"
#include "tests/fakes/fake_verbs_fixture.h"

namespace gantry::testing {
namespace {

using ::testing::ElementsAre;
using transport::PortChange;
using transport::WorkCompletion;
using transport::WorkItem;
using transport::WorkStatus;

class FakeVerbsTest : public FakeVerbsFixture {
 protected:
  FakeVerbsTest() { Connect(*a_, *b_); }
  void Reconnect() {
    a_ = MakeEnd(one_, "a0", 0xaa);
    b_ = MakeEnd(two_, "b0", 0xbb);
    Connect(*a_, *b_);
  }

  std::unique_ptr<VerbsEnd> a_ = MakeEnd(one_, "a0", 0xaa);
  std::unique_ptr<VerbsEnd> b_ = MakeEnd(two_, "b0", 0xbb);
};

TEST_F(FakeVerbsTest, NothingMovesBeforeSomebodyPollsAndWorkIsCounted) {
  EXPECT_EQ(Post(*a_, {Write(7, *a_, 200, 100, *b_, 300), Read(8, *a_, 600, 50, *b_, 4000)}), 2u);
  EXPECT_EQ(fabric_.pending(), 2u);
  EXPECT_TRUE(b_->HoldsOnly(0xbb));
  EXPECT_THAT(a_->Poll(),
              ElementsAre(Completed(7, WorkStatus::kSuccess), Completed(8, WorkStatus::kSuccess)));
  EXPECT_TRUE(b_->Holds(300, 100, 0xaa));
  EXPECT_EQ(fabric_.pending(), 0u);
  EXPECT_EQ(one_.work("a0").writes, 1u);
  EXPECT_EQ(one_.work("a0").reads, 1u);
  EXPECT_EQ(one_.work("a0").bytes, 150u);
}

TEST_F(FakeVerbsTest, WhatIsInlinedIsCountedAndNeitherAReadNorMemoryOfADmabuf) {
  WorkItem write = Write(1, *a_, 0, 8, *b_, 0);
  WorkItem read = Read(2, *a_, 0, 8, *b_, 0);
  write.inlined = read.inlined = true;
  int error_number = 0;
  EXPECT_EQ(Post(*a_, {write}, &error_number), 1u);
  EXPECT_EQ(Post(*a_, {read}, &error_number), 0u);
  EXPECT_EQ(error_number, EINVAL);
  EXPECT_THAT(a_->Poll(), ElementsAre(Completed(1, WorkStatus::kSuccess)));
  EXPECT_EQ(one_.work("a0").inlined, 1u);
  EXPECT_EQ(one_.work("a0").writes, 1u);

  FakeVerbs host(fabric_, {{.name = "c0", .dmabuf = true}});
  const auto c = MakeEnd(host, "c0", 0xcc);
  const auto d = MakeEnd(two_, "b0", 0xdd);
  Connect(*c, *d);
  const UniqueFd pages(::memfd_create("pages", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(pages.get(), 4096), 0);
  const auto region = c->device->RegisterDmabuf(pages.get(), 0, 4096, 1 << 20, kFullAccess);
  ASSERT_TRUE(region) << region.error().message;
  write.local_key = (*region)->local_key();
  write.local_address = 1 << 20;
  EXPECT_EQ(Post(*c, {write}, &error_number), 0u);
  EXPECT_EQ(error_number, EINVAL);
}

TEST_F(FakeVerbsTest, UnsignalledOnesKeepTheirPlaceUntilALaterOneIsPolled) {
  const WorkItem silent = Silent(Write(1, *a_, 0, 8, *b_, 0));
  int error_number = 0;
  EXPECT_EQ(Post(*a_, std::vector<WorkItem>(15, silent)), 15u);
  EXPECT_THAT(a_->Poll(), ElementsAre());
  EXPECT_TRUE(b_->Holds(0, 8, 0xaa));
  const WorkItem last = Write(2, *a_, 0, 8, *b_, 0);
  EXPECT_EQ(Post(*a_, {last, last}, &error_number), 1u);
  EXPECT_EQ(error_number, ENOMEM);
  EXPECT_EQ(Post(*a_, {silent}, &error_number), 0u);
  EXPECT_THAT(a_->Poll(), ElementsAre(Completed(2, WorkStatus::kSuccess)));
  EXPECT_EQ(Post(*a_, std::vector<WorkItem>(20, silent), &error_number), 16u);
  EXPECT_EQ(error_number, ENOMEM);
}

TEST_F(FakeVerbsTest, AQueuePairGrantsNoMoreThanItWasTold) {
  for (const bool writes : {true, false}) {
    const auto c = MakeEnd(one_, "a1", 0xcc);
    const auto d = MakeEnd(two_, "b0", 0xdd);
    transport::QueuePairOptions other = Options();
    (writes ? other.remote_write : other.remote_read) = false;
    ASSERT_TRUE(c->pair->Connect(c->Address(), d->Address(), Options()));
    ASSERT_TRUE(d->pair->Connect(d->Address(), c->Address(), other));
    const WorkItem granted = writes ? Read(1, *c, 0, 8, *d, 0) : Write(1, *c, 0, 8, *d, 0);
    const WorkItem refused = writes ? Write(2, *c, 0, 8, *d, 16) : Read(2, *c, 16, 8, *d, 0);
    EXPECT_EQ(Post(*c, {granted, refused}), 2u);
    EXPECT_THAT(c->Poll(), ElementsAre(Completed(1, WorkStatus::kSuccess),
                                       Completed(2, WorkStatus::kRemoteInvalidRequest)));
    EXPECT_TRUE(d->Holds(16, 8, 0xdd));
    EXPECT_TRUE(c->Holds(16, 8, 0xcc));
  }
}

TEST_F(FakeVerbsTest, ADeviceAsksAndAnswersNoMoreReadsAtATimeThanItTells) {
  FakeVerbs small(fabric_, {{.name = "s0", .limits = {UINT64_MAX, 10, 10, 64, 64, 8, 2}}});
  const auto c = MakeEnd(small, "s0", 0xcc);
  const auto d = MakeEnd(two_, "b0", 0xdd);
  transport::QueuePairOptions options = Options();
  transport::QueuePairAddress answers_more = c->Address();
  EXPECT_FALSE(c->pair->Connect(answers_more, d->Address(), options)) << "16 are more than 8";
  answers_more.reads_max = 8;
  EXPECT_FALSE(c->pair->Connect(answers_more, d->Address(), options)) << "16 are more than 2";
  options.reads_sent = 2;
  EXPECT_TRUE(c->pair->Connect(answers_more, d->Address(), options));
}

TEST_F(FakeVerbsTest, AMessageIsNoLongerThanThePortsOfBothEndsTake) {
  FakeVerbs small(fabric_, {{.name = "s0", .port = {true, true, 4096, 100, 0}}});
  for (const uint32_t length : {100U, 101U}) {
    for (const bool to_small : {false, true}) {
      const auto c = MakeEnd(small, "s0", 0xcc);
      const auto d = MakeEnd(two_, "b0", 0xdd);
      Connect(*c, *d);
      const VerbsEnd& from = to_small ? *d : *c;
      const VerbsEnd& to = to_small ? *c : *d;
      EXPECT_EQ(Post(from, {Write(1, from, 0, length, to, 0)}), 1u);
      const WorkStatus refused =
          to_small ? WorkStatus::kRemoteInvalidRequest : WorkStatus::kLocalLength;
      EXPECT_THAT(from.Poll(),
                  ElementsAre(Completed(1, length == 100 ? WorkStatus::kSuccess : refused)));
    }
  }
}

TEST_F(FakeVerbsTest, APortThatGoesDownEndsWhatIsInFlightAndSaysSo) {
  EXPECT_EQ(Post(*a_, {Write(1, *a_, 0, 8, *b_, 0), Write(2, *a_, 0, 8, *b_, 0)}), 2u);
  two_.SetPort("b0", false);
  EXPECT_TRUE(IsReadable(b_->device->event_fd()));
  EXPECT_FALSE(IsReadable(a_->device->event_fd()));
  EXPECT_EQ(b_->device->NextEvent(), PortChange::kDown);
  EXPECT_EQ(b_->device->NextEvent(), PortChange::kNone);
  EXPECT_FALSE(IsReadable(b_->device->event_fd()));
  EXPECT_FALSE(b_->device->Port()->active);
  EXPECT_THAT(a_->Poll(), ElementsAre(Completed(1, WorkStatus::kRetryExceeded),
                                      Completed(2, WorkStatus::kFlushed)));
  two_.SetPort("b0", true);
  EXPECT_EQ(b_->device->NextEvent(), PortChange::kUp);
  Reconnect();
  EXPECT_EQ(Post(*a_, {Write(3, *a_, 0, 8, *b_, 0)}), 1u);
  EXPECT_THAT(a_->Poll(), ElementsAre(Completed(3, WorkStatus::kSuccess)));
}

TEST_F(FakeVerbsTest, ADeviceThatIsUnpluggedFlushesAndRefuses) {
  EXPECT_EQ(Post(*a_, {Write(1, *a_, 0, 8, *b_, 0)}), 1u);
  one_.Unplug("a0");
  EXPECT_EQ(a_->device->NextEvent(), PortChange::kDeviceGone);
  EXPECT_THAT(a_->Poll(), ElementsAre(Completed(1, WorkStatus::kFlushed)));
  EXPECT_FALSE(a_->device->Port());
  EXPECT_FALSE(a_->device->Register(a_->memory, kFullAccess));
  EXPECT_THAT(*one_.Devices(), ElementsAre("a1"));
  EXPECT_FALSE(one_.Open("a0", 1));
  EXPECT_TRUE(a_->region->Deregister()) << "what was there went with it";
}

TEST_F(FakeVerbsTest, AnArmedQueueWakesOnceAtTheNextCompletion) {
  const WorkItem item = Write(1, *a_, 0, 8, *b_, 0);
  fabric_.SetProgress(FakeFabric::Progress::kByStep);
  EXPECT_EQ(Post(*a_, {item, item, item, item}), 4u);
  EXPECT_TRUE(fabric_.Step());
  ASSERT_TRUE(a_->queue->Arm());
  EXPECT_FALSE(IsReadable(a_->queue->fd())) << "the one before does not count";
  EXPECT_TRUE(fabric_.Step());
  EXPECT_TRUE(IsReadable(a_->queue->fd()));
  a_->queue->TakeEvents();
  EXPECT_FALSE(IsReadable(a_->queue->fd()));
  EXPECT_TRUE(fabric_.Step());
  EXPECT_FALSE(IsReadable(a_->queue->fd())) << "armed once";
  EXPECT_EQ(a_->Poll().size(), 3u);
  EXPECT_EQ(fabric_.pending(), 1u);
}

TEST_F(FakeVerbsTest, AQueueThatOverflowsBreaks) {
  auto queue = *a_->device->CreateCompletionQueue(2);
  a_->pair = *a_->device->CreateQueuePair(*queue, Options());
  b_->pair = *b_->device->CreateQueuePair(*b_->queue, Options());
  Connect(*a_, *b_);
  const WorkItem item = Write(1, *a_, 0, 8, *b_, 0);
  EXPECT_EQ(Post(*a_, {item, item, item}), 3u);
  WorkCompletion completions[4];
  EXPECT_LT(queue->Poll(completions), 0);
  a_->pair.reset();
}

TEST_F(FakeVerbsTest, ObjectsThatGoInTheWrongOrderFailTheTest) {
  auto device = *one_.Open("a1", 1);
  auto region = *device->Register(a_->memory, kFullAccess);
  EXPECT_NONFATAL_FAILURE(
      {
        EXPECT_TRUE(region->Deregister());
        (void)region->Deregister();
      },
      "deregistered twice");
  region.reset();
  EXPECT_NONFATAL_FAILURE(a_->queue.reset(), "before its queue pairs");
  b_->pair.reset();
  b_->queue.reset();
  EXPECT_NONFATAL_FAILURE(b_->device.reset(), "before its memory regions");
}

}  // namespace
}  // namespace gantry::testing
