#include "sidecar/transfer/transfer_engine.h"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "tests/fakes/engine_fixture.h"
#include "tests/sidecar/metrics/exposition.h"

namespace gantry::engine {
namespace {

using testing::In;
using testing::TestArena;

constexpr uint64_t kOffset = 12'288;  // views do not begin at the base
constexpr uint64_t kLength = 512 * 1024;

class TransferEngineTest : public testing::EngineFixture {
 protected:
  TransferEngineTest() : EngineFixture(Options()) {}

  static EngineOptions Options() {
    EngineOptions options;
    options.transfers_max = 8;
    options.quiesce_max = milliseconds(50);
    return options;
  }

  void SetUp() override {
    EngineFixture::SetUp();
    AddWorkload("a");
    AddWorkload("b");
    ASSERT_TRUE(Register("a", {&arena_a_}, {{"k", {{0, kOffset, kLength}}, Layout(), {}}}));
    ASSERT_TRUE(Register("b", {&arena_b_},
                         {{"k", {{0, kOffset, kLength}}, Layout(), {true, true}},
                          {"closed", {{0, kOffset, kLength}}, Layout(), {false, false}}}));
  }

  bool Shows(const std::string& line) {
    return metrics_.Text().find(line + "\n") != std::string::npos;
  }
  static wire::BlockLayout Layout() { return {4096, 4096, kLength / 4096}; }
  static wire::TransferRequest Whole() {
    return WithRange(Between("a", "k", "b", "k"), 0, 0, kLength);
  }
  ErrorCode Refused(const wire::TransferRequest& request, std::string* field = nullptr) {
    auto status = engine_->Submit(request, In(milliseconds(1000)));
    EXPECT_FALSE(status);
    if (status) return ErrorCode::kInternal;
    if (field != nullptr) *field = status.error().field;
    return status.error().code;
  }

  TestArena arena_a_{kArena, 1};
  TestArena arena_b_{kArena, 2};
};

TEST_F(TransferEngineTest, MovesOffsetViewsAndNothingBesides) {
  std::vector<uint8_t> expected(arena_a_.data(), arena_a_.data() + kArena);
  std::memcpy(expected.data() + kOffset + 100, arena_b_.data() + kOffset + 4097, 70'001);
  auto status = engine_->Submit(WithRange(Between("a", "k", "b", "k"), 100, 4097, 70'001),
                                In(milliseconds(2000)));
  ASSERT_TRUE(status) << status.error().message;
  EXPECT_EQ(status->state, TransferState::kSucceeded);
  EXPECT_EQ(status->bytes_moved, 70'001u);
  EXPECT_EQ(std::memcmp(expected.data(), arena_a_.data(), kArena), 0);
}

TEST_F(TransferEngineTest, WritesTheOtherWay) {
  std::vector<uint8_t> expected(arena_b_.data(), arena_b_.data() + kArena);
  std::memcpy(expected.data() + kOffset + 8192, arena_a_.data() + kOffset, 5000);
  auto request = WithRange(Between("a", "k", "b", "k"), 0, 8192, 5000);
  request.operation = wire::Operation::kWrite;
  ASSERT_TRUE(engine_->Submit(request, In(milliseconds(2000))));
  EXPECT_EQ(std::memcmp(expected.data(), arena_b_.data(), kArena), 0);
}

TEST_F(TransferEngineTest, ReportsPathAndWhyFasterOnesWereNotTaken) {
  auto status = engine_->Submit(Whole(), In(milliseconds(2000)));
  ASSERT_TRUE(status);
  EXPECT_EQ(status->path, wire::Path::kShm);
  ASSERT_EQ(status->paths.size(), static_cast<size_t>(wire::kPathCount));
  EXPECT_EQ(status->paths[0].path, wire::Path::kIpc);
  EXPECT_FALSE(status->paths[0].available);
  EXPECT_FALSE(status->paths[0].reason.empty());
  EXPECT_TRUE(status->paths[1].available);
}

TEST_F(TransferEngineTest, RequiredPathIsAnErrorWhenItCannotBeTaken) {
  auto request = Whole();
  request.require_path = {wire::Path::kRdma};
  std::string field;
  EXPECT_EQ(Refused(request, &field), ErrorCode::kPathUnavailable);
  EXPECT_EQ(field, "/require_path");
}

TEST_F(TransferEngineTest, RefusesWhatItMayNotTouch) {
  std::string field;
  EXPECT_EQ(Refused(WithRange(Between("a", "k", "b", "k"), 0, 1, kLength), &field),
            ErrorCode::kOutOfRange);
  EXPECT_EQ(field, "/ranges/0");
  EXPECT_EQ(Refused(WithRange(Between("a", "k", "b", "k"), UINT64_MAX - 10, 0, 100)),
            ErrorCode::kOutOfRange);
  EXPECT_EQ(Refused(WithRange(Between("a", "k", "b", "k"), 0, 0, 0), &field),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(field, "/ranges/0/length");
  EXPECT_EQ(Refused(WithRange(Between("a", "k", "b", "closed"), 0, 0, 10)),
            ErrorCode::kPermissionDenied);
  auto foreign = WithRange(Between("a", "k", "b", "k"), 0, 0, 10);
  foreign.local[0].workload = "b";
  EXPECT_EQ(Refused(foreign), ErrorCode::kPermissionDenied);
  auto stale = WithRange(Between("a", "k", "b", "k"), 0, 0, 10);
  stale.remote[0].generation = 42;
  EXPECT_EQ(Refused(stale), ErrorCode::kStaleGeneration);
  EXPECT_EQ(Refused(WithRange(Between("a", "nothing", "b", "k"), 0, 0, 10)),
            ErrorCode::kUnregistered);
  auto peer = WithRange(Between("a", "k", "b", "k"), 0, 0, 10);
  peer.remote[0].peer = "nobody";
  EXPECT_EQ(Refused(peer), ErrorCode::kNotFound);
  EXPECT_TRUE(pool_.posted().empty()) << "something was issued before every check was made";
}

TEST_F(TransferEngineTest, RefusesOverlappingDestinations) {
  auto request = WithRange(Between("a", "k", "b", "k"), 0, 0, 100);
  request.ranges.push_back({0, 99, 0, 200, 100});
  EXPECT_EQ(Refused(request), ErrorCode::kOverlap);
  auto blocks = Between("a", "k", "b", "k");
  blocks.by_blocks = true;
  blocks.local_blocks = {3, 5, 3};
  blocks.remote_blocks = {1, 2, 3};
  std::string field;
  EXPECT_EQ(Refused(blocks, &field), ErrorCode::kOverlap);
  EXPECT_EQ(field, "/local_blocks/2");
}

TEST_F(TransferEngineTest, RefusesBlocksOutOfRange) {
  auto request = Between("a", "k", "b", "k");
  request.by_blocks = true;
  request.local_blocks = {0, 1};
  request.remote_blocks = {0, kLength / 4096};
  std::string field;
  EXPECT_EQ(Refused(request, &field), ErrorCode::kOutOfRange);
  EXPECT_EQ(field, "/remote_blocks/1");
}

TEST_F(TransferEngineTest, ReadOnlyMemoryIsNoDestination) {
  AddWorkload("c");
  ASSERT_TRUE(Register("c", {&arena_a_}, {{"k", {{0, 0, kLength}}, Layout(), {true, false}}},
                       /*read_only=*/true));
  EXPECT_EQ(Refused(WithRange(Between("c", "k", "b", "k"), 0, 0, 10)),
            ErrorCode::kPermissionDenied);
}

TEST_F(TransferEngineTest, SameIdAnswersTheSameTransfer) {
  auto request = Whole();
  request.id = "t1";
  auto first = engine_->Submit(request, In(milliseconds(2000)));
  ASSERT_TRUE(first);
  const size_t posted = pool_.posted().size();
  auto again = engine_->Submit(request, In(milliseconds(2000)));
  ASSERT_TRUE(again);
  EXPECT_EQ(again->timings.accepted_unix_ms, first->timings.accepted_unix_ms);
  EXPECT_EQ(pool_.posted().size(), posted) << "the repeated request moved bytes again";
  request.ranges[0].length = 1;
  EXPECT_EQ(Refused(request), ErrorCode::kConflict);
  // Also when the buffers are gone.
  request.ranges[0].length = kLength;
  auto buffer = registry_.ByName("b", "k");
  ASSERT_TRUE(buffer);
  ASSERT_TRUE(registry_.Remove((*buffer)->description().id, In(milliseconds(100))));
  EXPECT_TRUE(engine_->Submit(request, Clock::now()));
}

TEST_F(TransferEngineTest, DeadlineEndsATransferOnlyWhenItIsQuiet) {
  pool_.Hold();
  auto request = Whole();
  request.id = "late";
  request.deadline_ms = 50;
  const TimePoint begun = Clock::now();
  auto status = engine_->Submit(request, In(milliseconds(5000)));
  ASSERT_TRUE(status);
  EXPECT_EQ(status->state, TransferState::kExpired);
  EXPECT_EQ(status->error->code, ErrorCode::kDeadlineExceeded);
  EXPECT_GE(Clock::now() - begun, milliseconds(100)) << "it did not wait for quiesce_max";
  EXPECT_GT(pool_.replacements(), 0) << "hung workers were not ended";
  EXPECT_EQ(pool_.in_flight(), 0u) << "reported while bytes could still move";
  EXPECT_TRUE(Shows("gantry_transport_errors_total{path=\"shm\",reason=\"timeout\"} 1"));
}

TEST_F(TransferEngineTest, CancelWaitsForWhatIsInFlight) {
  pool_.DelayCompletions(milliseconds(30));
  auto request = Whole();
  request.id = "c";
  ASSERT_TRUE(engine_->Submit(request, Clock::now()));
  auto status = engine_->Cancel("a", "c", In(milliseconds(5000)));
  ASSERT_TRUE(status);
  EXPECT_TRUE(IsTerminal(status->state));
  EXPECT_EQ(pool_.in_flight(), 0u);
  EXPECT_EQ(pool_.replacements(), 0);
}

TEST_F(TransferEngineTest, CancelledTransferNamesWhatDidNotArrive) {
  pool_.Hold();
  auto request = Whole();
  request.id = "c";
  ASSERT_TRUE(engine_->Submit(request, Clock::now()));
  auto status = engine_->Cancel("a", "c", In(milliseconds(5000)));
  ASSERT_TRUE(status);
  EXPECT_EQ(status->state, TransferState::kCancelled);
  EXPECT_EQ(*status->failed_items, std::vector<uint32_t>{0});
}

TEST_F(TransferEngineTest, LostWorkerIsRetriedOnce) {
  pool_.Hold();
  auto request = Whole();
  request.id = "w";
  ASSERT_TRUE(engine_->Submit(request, Clock::now()));
  pool_.Replace(0);
  pool_.Release();
  auto status = engine_->Get("a", "w", In(milliseconds(5000)));
  ASSERT_TRUE(status);
  EXPECT_EQ(status->state, TransferState::kSucceeded);
  EXPECT_EQ(std::memcmp(arena_a_.data() + kOffset, arena_b_.data() + kOffset, kLength), 0);
}

TEST_F(TransferEngineTest, FailureOfACopyFailsTheTransferWithItsItems) {
  pool_.FailAll(ErrorCode::kDeviceError);
  auto request = Between("a", "k", "b", "k");
  request.by_blocks = true;
  request.local_blocks = {9, 7, 5};
  request.remote_blocks = {1, 2, 3};
  auto status = engine_->Submit(request, In(milliseconds(5000)));
  ASSERT_TRUE(status);
  EXPECT_EQ(status->state, TransferState::kFailed);
  EXPECT_EQ(status->error->code, ErrorCode::kDeviceError);
  EXPECT_EQ(*status->failed_items, (std::vector<uint32_t>{0, 1, 2}));
  EXPECT_TRUE(Shows("gantry_access_errors_total{path=\"shm\",reason=\"device_error\"} 1"));
}

TEST_F(TransferEngineTest, QueueIsBounded) {
  pool_.Hold();
  for (int i = 0; i < 8; ++i) {
    auto request = Whole();
    request.id = "q" + std::to_string(i);
    ASSERT_TRUE(engine_->Submit(request, Clock::now()));
  }
  EXPECT_EQ(Refused(Whole()), ErrorCode::kResourceExhausted);
  EXPECT_EQ(engine_->Totals().queued + engine_->Totals().running, 8u);
  pool_.Release();
  EXPECT_TRUE(engine_->Get("a", "q7", In(milliseconds(5000))));
}

TEST_F(TransferEngineTest, NothingIsUnmappedUnderARunningTransfer) {
  pool_.Hold();
  auto request = Whole();
  request.id = "d";
  ASSERT_TRUE(engine_->Submit(request, Clock::now()));
  auto buffer = registry_.ByName("a", "k");
  ASSERT_TRUE(buffer);
  const std::string id = (*buffer)->description().id;
  const size_t mappings = pool_.mapping_count();
  auto removed = registry_.Remove(id, In(milliseconds(30)));
  ASSERT_FALSE(removed);
  EXPECT_EQ(removed.error().code, ErrorCode::kDeadlineExceeded);
  EXPECT_EQ(pool_.mapping_count(), mappings);
  EXPECT_EQ(Refused(Whole()), ErrorCode::kUnregistered) << "a draining buffer took new work";
  pool_.Release();
  ASSERT_TRUE(registry_.Remove(id, In(milliseconds(2000))));
  EXPECT_LT(pool_.mapping_count(), mappings);
  EXPECT_EQ(engine_->Get("a", "d", Clock::now())->state, TransferState::kSucceeded);
}

TEST_F(TransferEngineTest, EventsFollowEachOther) {
  auto request = Whole();
  request.id = "e";
  request.user_data = "mine";
  ASSERT_TRUE(engine_->Submit(request, In(milliseconds(2000))));
  EventLog::Page page = events_.Poll({"a"}, 0, 10, In(milliseconds(2000)));
  ASSERT_EQ(page.events.size(), 1u);
  EXPECT_EQ(page.events[0].subject, "e");
  EXPECT_EQ(page.events[0].transfer->user_data, "mine");
  EXPECT_EQ(page.events[0].transfer->state, TransferState::kSucceeded) << "written after the end";
  EXPECT_TRUE(events_.Poll({"b"}, 0, 10, Clock::now()).events.empty()) << "not theirs to see";
  EXPECT_TRUE(events_.Poll({"a"}, page.cursor, 10, Clock::now()).events.empty());
}

TEST_F(TransferEngineTest, StopTransfersOfAWorkload) {
  pool_.Hold();
  auto request = Whole();
  request.id = "s";
  ASSERT_TRUE(engine_->Submit(request, Clock::now()));
  engine_->StopTransfersOf("a", 0, Error(ErrorCode::kCancelled, "its owner died"));
  auto status = engine_->Get("a", "s", In(milliseconds(5000)));
  ASSERT_TRUE(status);
  EXPECT_EQ(status->state, TransferState::kCancelled);
  EXPECT_EQ(status->error->message, "its owner died");
}

TEST_F(TransferEngineTest, FailureIsReportedAsSuchWhileAnotherPartHangs) {
  pool_.Hold();
  auto request = Whole();
  request.id = "f";
  ASSERT_TRUE(engine_->Submit(request, Clock::now()));
  for (int round = 0; round < 2; ++round) {  // the part and its repetition
    const auto posted = pool_.posted();
    pool_.Replace(posted.at(posted.size() - 1).worker);
    for (int i = 0; round == 0 && i < 5'000 && pool_.posted().size() == posted.size(); ++i) {
      std::this_thread::sleep_for(milliseconds(1));  // until the engine's thread has repeated it
    }
  }
  auto status = engine_->Get("a", "f", In(milliseconds(5000)));
  ASSERT_TRUE(status);
  EXPECT_EQ(status->state, TransferState::kFailed) << "it took until the deadline";
  EXPECT_EQ(status->error->code, ErrorCode::kWorkerLost);
  EXPECT_EQ(pool_.in_flight(), 0u);
  EXPECT_TRUE(Shows("gantry_transport_errors_total{path=\"shm\",reason=\"worker_lost\"} 1"));
}

TEST_F(TransferEngineTest, TransferThatArrivesAfterItsWorkloadEndedIsRefused) {
  auto buffer = registry_.ByName("a", "k");
  ASSERT_TRUE(buffer);
  engine_->StopTransfersOf("a", (*buffer)->description().workload_generation,
                           Error(ErrorCode::kCancelled, "its owner died"));
  EXPECT_EQ(Refused(Whole()), ErrorCode::kCancelled);
}

TEST_F(TransferEngineTest, OneFileUnderTwoNamesIsStillOneMemory) {
  AddWorkload("c");
  ASSERT_TRUE(Register("c", {&arena_a_}, {{"k", {{0, kOffset, kLength}}, Layout(), {true, true}}},
                       /*read_only=*/false));
  EXPECT_EQ(Refused(WithRange(Between("a", "k", "c", "k"), 0, 50, 100)), ErrorCode::kOverlap);
}

TEST_F(TransferEngineTest, QueuedAndRunningAreCounted) {
  pool_.Hold();
  for (int i = 0; i < 3; ++i) {
    auto request = Whole();
    request.id = "n" + std::to_string(i);
    ASSERT_TRUE(engine_->Submit(request, Clock::now()));
  }
  const EngineTotals totals = engine_->Totals();
  EXPECT_EQ(totals.queued + totals.running, 3u);
  EXPECT_GT(totals.running, 0u);
  EXPECT_EQ(totals.bytes_inflight, 3 * kLength);
  pool_.Release();
}

TEST_F(TransferEngineTest, BusyTimeGrowsWhileThePathIsNeverIdle) {
  pool_.Hold();
  for (const std::string id : {"ends", "goes_on"}) {
    auto request = Whole();
    request.id = id;
    ASSERT_TRUE(engine_->Submit(request, Clock::now()));
  }
  ASSERT_TRUE(engine_->Cancel("a", "ends", In(milliseconds(5000))));  // after quiesce_max
  EXPECT_EQ(engine_->Totals().queued + engine_->Totals().running, 1u);
  EXPECT_GE(metrics::Exposition(metrics_.Text())
                .At("gantry_transfer_active_seconds_total{op=\"read\",path=\"shm\"}"),
            0.05);
  pool_.Release();
}

TEST_F(TransferEngineTest, WhatIsAskedLastFindsAllBuffersInUseAndNoByteMoved) {
  const std::vector<uint8_t> before(arena_a_.data(), arena_a_.data() + kArena);
  size_t uses = 0;
  const auto refuse = [&]() -> Status {
    uses = (*registry_.ByName("a", "k"))->uses() + (*registry_.ByName("b", "k"))->uses();
    return Fail(ErrorCode::kPeerLost, "not any more");
  };
  const auto status = engine_->Submit(Whole(), In(milliseconds(1000)), refuse);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kPeerLost);
  EXPECT_EQ(uses, 2u);
  EXPECT_EQ(std::memcmp(before.data(), arena_a_.data(), kArena), 0);
  EXPECT_EQ((*registry_.ByName("a", "k"))->uses(), 0u);
}

TEST_F(TransferEngineTest, ManyCallersAtOnce) {
  std::vector<std::thread> callers;
  for (int c = 0; c < 4; ++c) {
    callers.emplace_back([this, c] {
      for (uint64_t i = 0; i < 50; ++i) {
        const uint64_t offset = (static_cast<uint64_t>(c) * 50 + i) * 2048;
        auto request = WithRange(Between("a", "k", "b", "k"), offset, offset, 2048);
        auto status = engine_->Submit(request, In(milliseconds(5000)));
        ASSERT_TRUE(status) << status.error().message;
        ASSERT_EQ(status->state, TransferState::kSucceeded);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(std::memcmp(arena_a_.data() + kOffset, arena_b_.data() + kOffset, 200 * 2048), 0);
  EXPECT_EQ(engine_->Totals().running, 0u);
}

}  // namespace
}  // namespace gantry::engine
