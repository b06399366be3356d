// What is refused, what comes to nothing, and that no byte moves after its end.
#include <functional>

#include "tests/contracts/verbs_contract.h"

namespace gantry::testing {
namespace {

using ::testing::ElementsAre;
using transport::QueuePairAddress;
using transport::RegionAccess;
using transport::WorkCompletion;
using transport::WorkItem;
using transport::WorkOperation;
using transport::WorkStatus;

constexpr RegionAccess kReadOnly = {true, true, false, false};
constexpr RegionAccess kWriteOnly = {true, false, true, false};

// A part of an end's memory, registered by itself.
constexpr size_t kPart = 4099;
constexpr size_t kPartBytes = 3001;

enum class Key { kOwn, kNeighbours, kNobodys };

struct RefusedCase {
  const char* what;
  RegionAccess access;  // of the part
  WorkOperation operation;
  uint64_t at;  // in the target's memory, or kNearTheEnd
  uint32_t length;
  Key key = Key::kOwn;
  bool signalled = true;
};

constexpr uint64_t kPartEnd = kPart + kPartBytes;
constexpr uint64_t kNearTheEnd = UINT64_MAX - 10;  // of all addresses
constexpr auto kWrite = WorkOperation::kWrite;
constexpr auto kRead = WorkOperation::kRead;

constexpr RefusedCase kRefusedCases[] = {
    {"a write past the end", kFullAccess, kWrite, kPartEnd - 99, 100},
    {"a read past the end", kFullAccess, kRead, kPartEnd - 99, 100},
    {"a write of more than there is", kFullAccess, kWrite, kPart, kPartBytes + 1},
    {"a write below the start", kFullAccess, kWrite, kPart - 1, 100},
    {"a read below the start", kFullAccess, kRead, kPart - 1, 100},
    {"a write behind it", kFullAccess, kWrite, kPartEnd, 1},
    {"a range that wraps", kFullAccess, kWrite, kNearTheEnd, 100},
    {"its neighbour's key", kFullAccess, kWrite, kPart, 100, Key::kNeighbours},
    {"no such key", kFullAccess, kRead, kPart, 100, Key::kNobodys},
    {"no right to write", kReadOnly, kWrite, kPart, 100},
    {"no right to read", kWriteOnly, kRead, kPart, 100},
    {"a silent one", kReadOnly, kWrite, kPart, 100, Key::kOwn, false},
};

TEST_P(VerbsContract, WhatTheTargetRefusesMovesNothingAndFailsBothQueuePairs) {
  for (const RefusedCase& each : kRefusedCases) {
    SCOPED_TRACE(each.what);
    Reconnect();
    const std::span<std::byte> memory = b_->memory;
    const auto part = *b_->device->Register(memory.subspan(kPart, kPartBytes), each.access);
    const auto neighbour = *b_->device->Register(memory.subspan(kPartEnd, 4096), kFullAccess);
    WorkItem item = Item(1, each.operation, *a_, 0, each.length, *b_, each.at);
    item.signalled = each.signalled;
    if (each.at == kNearTheEnd) item.remote_address = kNearTheEnd;
    item.remote_key = each.key == Key::kNeighbours ? neighbour->remote_key()
                      : each.key == Key::kOwn      ? part->remote_key()
                                                   : part->remote_key() ^ 1;
    EXPECT_EQ(Post(*a_, {item, Silent(Read(2, *a_, 0, 8, *b_, 0))}), 2u);
    EXPECT_THAT(a_->Await(2), ElementsAre(Completed(1, WorkStatus::kRemoteAccess),
                                          Completed(2, WorkStatus::kFlushed)));
    EXPECT_TRUE(a_->HoldsOnly(kHere) && b_->HoldsOnly(kThere));
    ExpectFlushes(*a_);
    ExpectFlushes(*b_);
    ASSERT_FALSE(HasFailure());  // each that does not come is waited for
  }
}

TEST_P(VerbsContract, UpToItsLastByteAPartIsReached) {
  const auto part =
      *b_->device->Register(std::span(b_->memory).subspan(kPart, kPartBytes), kFullAccess);
  for (const auto& [at, length] :
       {std::pair{kPart, size_t{1}}, {kPartEnd - 1, size_t{1}}, {kPart, kPartBytes}}) {
    WorkItem item = Write(1, *a_, 0, static_cast<uint32_t>(length), *b_, at);
    item.remote_key = part->remote_key();
    ExpectDone(*a_, item);
    item = Read(2, *a_, 8192, static_cast<uint32_t>(length), *b_, at);
    item.remote_key = part->remote_key();
    ExpectDone(*a_, item);
  }
  EXPECT_TRUE(b_->Holds(0, kPart, kThere) && b_->Holds(kPart, kPartBytes, kHere));
  EXPECT_TRUE(b_->Holds(kPartEnd, VerbsEnd::kBytes - kPartEnd, kThere));
}

TEST_P(VerbsContract, ARegionThatIsGoneOrOfAnotherOpeningIsRefused) {
  const WorkItem item = Write(1, *a_, 0, 100, *b_, 0);
  ASSERT_TRUE(b_->region->Deregister());
  b_->region = *b_->device->Register(b_->memory, kFullAccess);
  EXPECT_EQ(Post(*a_, {item}), 1u);
  EXPECT_THAT(a_->Await(1), ElementsAre(Completed(1, WorkStatus::kRemoteAccess)));
  EXPECT_TRUE(b_->HoldsOnly(kThere));

  Reconnect();
  const auto other = There();
  EXPECT_EQ(Post(*a_, {Write(2, *a_, 0, 100, *other, 0)}), 1u);
  EXPECT_THAT(a_->Await(1), ElementsAre(Completed(2, WorkStatus::kRemoteAccess)));
  EXPECT_TRUE(other->HoldsOnly(kThere));
}

// Soft-RoCE tells of a key that it does not know in another way, and of newer kernels flushes all.
TEST_P(VerbsContract, AWrongLocalKeyRangeOrRightMovesNothingAndFailsTheOwnQueuePair) {
  const auto other = Here();
  const auto part = [this](const RegionAccess& access) {
    return *a_->device->Register(std::span(a_->memory).subspan(kPart, kPartBytes), access);
  };
  const std::function<WorkItem(uint32_t key)> cases[] = {
      [this](uint32_t key) { return Write(key, *a_, kPartEnd - 99, 100, *b_, 0); },
      [this](uint32_t key) { return Write(key, *a_, kPart - 1, 100, *b_, 0); },
      [this](uint32_t key) { return Read(key, *a_, kPart - 1, 100, *b_, 0); },
      [this](uint32_t key) { return Write(key ^ 1, *a_, kPart, 100, *b_, 0); },
      [this, &other](uint32_t) {
        return Write(other->region->local_key(), *a_, kPart, 100, *b_, 0);
      },
  };
  const auto expect_refused = [this](WorkItem item) {
    item.local_key = static_cast<uint32_t>(std::exchange(item.id, 1));
    EXPECT_EQ(Post(*a_, {item, Silent(Read(2, *a_, 0, 8, *b_, 0))}), 2u);
    EXPECT_THAT(a_->Await(2),
                ElementsAre(::testing::AnyOf(Completed(1, WorkStatus::kLocalProtection),
                                             Completed(1, WorkStatus::kLocalQueuePair),
                                             Completed(1, WorkStatus::kFlushed)),
                            Completed(2, WorkStatus::kFlushed)));
    EXPECT_TRUE(a_->HoldsOnly(kHere) && b_->HoldsOnly(kThere));
    ExpectFlushes(*a_);
  };
  for (const auto& make : cases) {
    SCOPED_TRACE(&make - cases);
    Reconnect();
    const auto full = part(kFullAccess);
    expect_refused(make(full->local_key()));
    ASSERT_FALSE(HasFailure());
  }
  Reconnect();
  const auto read_only = part({false, true, false, false});
  WorkItem item = Write(1, *a_, kPart, 100, *b_, 0);
  item.local_key = read_only->local_key();
  ExpectDone(*a_, item);
  b_ = There();
  a_->pair = *a_->device->CreateQueuePair(*a_->queue, a_->options);
  Connect(*a_, *b_);
  expect_refused(Read(read_only->local_key(), *a_, kPart, 100, *b_, 0));
}

TEST_P(VerbsContract, WithNoPeerThatListensRetriesAreExceeded) {
  const std::pair<const char*, std::function<void(const VerbsEnd& c, VerbsEnd* d)>> peers[] = {
      {"gone", [](const VerbsEnd& c, VerbsEnd* d) { Connect(c, *d), d->pair.reset(); }},
      {"failed",
       [](const VerbsEnd& c, VerbsEnd* d) {
         Connect(c, *d);
         ASSERT_TRUE(d->pair->Fail());
       }},
      {"not connected",
       [](const VerbsEnd& c, VerbsEnd* d) {
         ASSERT_TRUE(c.pair->Connect(c.Address(), d->Address(), c.options));
       }},
      {"of another connection",
       [this](const VerbsEnd& c, VerbsEnd* d) {
         const auto third = Here();
         Connect(*third, *d);
         ASSERT_TRUE(c.pair->Connect(c.Address(), d->Address(), c.options));
       }},
      {"with other sequence numbers",
       [](const VerbsEnd& c, VerbsEnd* d) {
         QueuePairAddress from = c.Address();
         ASSERT_TRUE(d->pair->Connect(d->Address(), from, d->options));
         from.packet_sequence += 1000;
         ASSERT_TRUE(c.pair->Connect(from, d->Address(), c.options));
       }},
  };
  for (const auto& [what, prepare] : peers) {
    SCOPED_TRACE(what);
    const auto c = Here();
    const auto d = There();
    BeHasty(*c);
    prepare(*c, d.get());
    EXPECT_EQ(Post(*c, {Write(1, *c, 0, 8, *d, 0), Silent(Read(2, *c, 0, 8, *d, 0))}), 2u);
    EXPECT_THAT(c->Await(2), ElementsAre(Completed(1, WorkStatus::kRetryExceeded),
                                         Completed(2, WorkStatus::kFlushed)));
    EXPECT_TRUE(c->HoldsOnly(kHere) && d->HoldsOnly(kThere));
    ExpectFlushes(*c);
    ASSERT_FALSE(HasFailure());
  }
}

TEST_P(VerbsContract, FailingAQueuePairFlushesWhatItHas) {
  a_ = Here();
  b_ = There();
  a_->options.timeout = 20;  // four seconds, so that nothing comes to an end by itself
  Connect(*a_, *b_);
  b_->pair.reset();
  EXPECT_EQ(Post(*a_, {Write(1, *a_, 0, 8, *b_, 0), Silent(Read(2, *a_, 0, 8, *b_, 0)),
                       Read(3, *a_, 0, 8, *b_, 0)}),
            3u);
  ASSERT_TRUE(a_->pair->Fail());
  EXPECT_THAT(a_->Await(3),
              ElementsAre(Completed(1, WorkStatus::kFlushed), Completed(2, WorkStatus::kFlushed),
                          Completed(3, WorkStatus::kFlushed)));
  EXPECT_TRUE(a_->HoldsOnly(kHere) && b_->HoldsOnly(kThere));
  EXPECT_TRUE(a_->pair->Fail()) << "once more";
  ExpectFlushes(*a_);
}

// At the end into whose memory they move, while the other one goes on.
TEST_P(VerbsContract, NoByteMovesWhereTheQueuePairIsGone) {
  for (const bool reads : {false, true}) {
    Reconnect();
    const WorkItem item = reads ? Read(1, *a_, 0, 16384, *b_, 0) : Write(1, *a_, 0, 16384, *b_, 0);
    EXPECT_EQ(Post(*a_, std::vector<WorkItem>(kRoom, item)), kRoom);
    VerbsEnd& to = reads ? *a_ : *b_;
    VerbsEnd& from = reads ? *b_ : *a_;
    to.pair.reset();
    std::fill(to.memory.begin(), to.memory.end(), std::byte{0x11});
    std::fill(from.memory.begin(), from.memory.end(), std::byte{0x22});
    (void)from.Poll();
    SleepShortly();
    EXPECT_TRUE(to.HoldsOnly(0x11)) << (reads ? "read" : "written") << " after its end";
  }
}

TEST_P(VerbsContract, NoByteMovesAfterDeregistering) {
  for (int round = 0; round < 3; ++round) {
    Reconnect();
    EXPECT_EQ(Post(*a_, std::vector<WorkItem>(kRoom, Write(1, *a_, 0, 16384, *b_, 0))), kRoom);
    ASSERT_TRUE(b_->region->Deregister());
    std::fill(b_->memory.begin(), b_->memory.end(), std::byte{0x22});
    const std::vector<WorkCompletion> done = a_->Await(kRoom);
    ASSERT_EQ(done.size(), kRoom);
    EXPECT_TRUE(b_->HoldsOnly(0x22));
    bool refused = false;
    for (const WorkCompletion& each : done) {
      if (each.status == WorkStatus::kSuccess && !refused) continue;
      EXPECT_EQ(each.status, refused ? WorkStatus::kFlushed : WorkStatus::kRemoteAccess);
      refused = true;
    }
  }
}

}  // namespace
}  // namespace gantry::testing
