#include "sidecar/messaging/hold_table.h"

#include <gtest/gtest.h>

#include "tests/fakes/engine_fixture.h"

namespace gantry::engine {
namespace {

using ::gantry::testing::TestArena;

class HoldTableTest : public ::gantry::testing::EngineFixture {
 protected:
  void SetUp() override {
    EngineFixture::SetUp();
    AddWorkload("owner");
    const wire::BlockLayout layout{4096, 4096, 8};
    for (const char* name : {"k", "v"}) {
      auto made = Register("owner", {&arena_}, {{name, {{0, 0, 8 * 4096}}, layout}});
      ASSERT_TRUE(made) << made.error().message;
      generation_[name] = made->front()->description().generation;
    }
  }

  Result<HoldInfo> Put(const std::string& id, uint64_t ttl_ms,
                       std::optional<uint64_t> consumers = std::nullopt,
                       std::optional<std::vector<uint64_t>> blocks = {{1, 2, 5}}) {
    return holds_.Put(id, {"owner", {{{"k", "v"}, std::move(blocks)}}, ttl_ms, consumers},
                      generations_["owner"]);
  }
  wire::HoldUse UseOf(const std::string& id, std::optional<std::vector<uint64_t>> blocks = {{1}}) {
    return {"owner", id, {{{{"k", generation_["k"]}}, std::move(blocks)}}, 1000};
  }
  Result<uint64_t> Use(const std::string& id, std::optional<std::vector<uint64_t>> blocks = {{1}}) {
    return holds_.Use(UseOf(id, std::move(blocks)), "session");
  }
  Result<HoldInfo> Extend(const std::string& id, uint64_t ttl_ms) {
    return holds_.Extend("owner", generations_["owner"], id, ttl_ms);
  }
  HoldState StateOf(const std::string& id) { return holds_.Get("owner", id)->state; }
  ErrorCode CodeOfUse(const std::string& id, std::optional<std::vector<uint64_t>> blocks = {{1}}) {
    const auto use = Use(id, std::move(blocks));
    return use ? ErrorCode::kInternal : use.error().code;
  }
  void Pass(int time_ms) { now_ += milliseconds(time_ms); }
  // "id outcome consumers", of all events.
  std::vector<std::string> Outcomes() {
    std::vector<std::string> outcomes;
    for (const Event& event :
         events_.Poll({"owner", generations_["owner"]}, 0, 100, Clock::now()).events) {
      if (event.type != EventType::kHold) continue;
      outcomes.push_back(event.subject + " " + std::string(NameOf(event.hold->state)) + " " +
                         std::to_string(event.hold->consumers));
    }
    return outcomes;
  }
  using Lines = std::vector<std::string>;

  TestArena arena_{8 * 4096};
  TimePoint now_ = Clock::now();
  HoldTable holds_{workloads_, registry_,     events_,
                   metrics_,   {4, 16, 3, 2}, [this] { return now_; }};
  std::map<std::string, uint64_t> generation_;
};

TEST_F(HoldTableTest, ExpiresWhenItsTimeIsOver) {
  ASSERT_TRUE(Put("h", 100));
  Pass(99);
  EXPECT_TRUE(Use("h"));
  holds_.EndUse(*Use("h"), false);
  Pass(2'000);
  EXPECT_EQ(CodeOfUse("h"), ErrorCode::kLeaseExpired);
  EXPECT_EQ(Outcomes(), Lines{"h expired 0"});
  EXPECT_EQ(StateOf("h"), HoldState::kExpired);
  EXPECT_EQ(Extend("h", 100).error().code, ErrorCode::kLeaseExpired);
  EXPECT_TRUE(holds_.Release("owner", "h"));
}

TEST_F(HoldTableTest, TickEndsWhatNobodyAsksFor) {
  ASSERT_TRUE(Put("h", 100));
  holds_.Tick();
  EXPECT_TRUE(Outcomes().empty());
  Pass(100);
  holds_.Tick();
  EXPECT_EQ(Outcomes(), Lines{"h expired 0"});
  EXPECT_EQ(holds_.size(), 0u);
}

TEST_F(HoldTableTest, ExtendingMovesTheEnd) {
  ASSERT_TRUE(Put("h", 100));
  for (int i = 0; i < 5; ++i) {
    Pass(80);
    EXPECT_TRUE(Extend("h", 100));
  }
  EXPECT_TRUE(Use("h"));
}

TEST_F(HoldTableTest, DoesNotExpireUnderAReader) {
  ASSERT_TRUE(Put("h", 100));
  const auto use = Use("h");
  ASSERT_TRUE(use);
  Pass(500);
  holds_.Tick();
  EXPECT_TRUE(Outcomes().empty());
  EXPECT_EQ(CodeOfUse("h"), ErrorCode::kLeaseExpired);  // but nobody else begins
  EXPECT_EQ(StateOf("h"), HoldState::kEnding);
  EXPECT_EQ(Extend("h", 100).error().code, ErrorCode::kLeaseExpired);
  EXPECT_EQ(Put("h", 100).error().code, ErrorCode::kConflict);
  EXPECT_TRUE(Outcomes().empty());
  holds_.EndUse(*use, true);
  EXPECT_EQ(Outcomes(), Lines{"h expired 1"});
}

TEST_F(HoldTableTest, AReaderThatIsNeverHeardOfAgainKeepsItForItsTimeOnly) {
  ASSERT_TRUE(Put("h", 100));
  ASSERT_TRUE(Use("h"));
  Pass(999);
  holds_.Tick();
  EXPECT_TRUE(Outcomes().empty());
  Pass(1);
  holds_.Tick();
  EXPECT_EQ(Outcomes(), Lines{"h expired 0"});
}

TEST_F(HoldTableTest, ALostReaderKeepsItNoLongerButCountsWhenItComesBack) {
  ASSERT_TRUE(Put("gone", 100));
  ASSERT_TRUE(Put("back", 1000, 1));
  ASSERT_TRUE(Use("gone"));
  const auto use = Use("back");
  Pass(200);
  holds_.LoseUses("session");
  EXPECT_EQ(Outcomes(), Lines{"gone expired 0"});
  holds_.EndUse(*use, true);
  EXPECT_EQ(Outcomes(), (Lines{"gone expired 0", "back consumed 1"}));
}

TEST_F(HoldTableTest, IsConsumedByAsManyAsWereExpected) {
  ASSERT_TRUE(Put("h", 1000, 2));
  const auto first = Use("h"), second = Use("h"), third = Use("h");
  holds_.EndUse(*first, true);
  holds_.EndUse(*first, true);    // told twice
  holds_.EndUse(*second, false);  // did not succeed
  EXPECT_TRUE(Outcomes().empty());
  holds_.EndUse(*third, true);
  EXPECT_EQ(Outcomes(), Lines{"h consumed 2"});
  EXPECT_EQ(CodeOfUse("h"), ErrorCode::kLeaseExpired);
}

TEST_F(HoldTableTest, WhoBeganBeforeItWasConsumedMayEnd) {
  ASSERT_TRUE(Put("h", 1000, 1));
  const auto first = Use("h"), second = Use("h");
  holds_.EndUse(*first, true);
  EXPECT_TRUE(Outcomes().empty());
  EXPECT_EQ(CodeOfUse("h"), ErrorCode::kLeaseExpired);
  holds_.EndUse(*second, false);
  EXPECT_EQ(Outcomes(), Lines{"h consumed 1"});
}

TEST_F(HoldTableTest, AReleaseWaitsForThoseWhoRead) {
  ASSERT_TRUE(Put("h", 1000));
  const auto use = Use("h");
  EXPECT_EQ(holds_.Release("owner", "h")->state, HoldState::kEnding);
  EXPECT_EQ(CodeOfUse("h"), ErrorCode::kLeaseExpired);
  EXPECT_EQ(Extend("h", 1000).error().code, ErrorCode::kLeaseExpired);
  EXPECT_EQ(holds_.Release("owner", "h")->state, HoldState::kEnding);
  EXPECT_TRUE(Outcomes().empty());
  holds_.EndUse(*use, true);
  EXPECT_EQ(Outcomes(), Lines{"h released 1"});
  EXPECT_EQ(holds_.Release("owner", "h")->state, HoldState::kReleased);
}

TEST_F(HoldTableTest, AReadCountsAsManyAsItSays) {
  ASSERT_TRUE(Put("h", 1000, 3));
  wire::HoldUse use = UseOf("h");
  use.consumers = 0;  // one part of several
  holds_.EndUse(*holds_.Use(use, ""), true);
  EXPECT_EQ(holds_.Get("owner", "h")->consumers, 0u);
  use.consumers = 2;
  holds_.EndUse(*holds_.Use(use, ""), true);
  EXPECT_TRUE(Outcomes().empty());
  use.consumers = 1;
  holds_.EndUse(*holds_.Use(use, ""), true);
  EXPECT_EQ(Outcomes(), Lines{"h consumed 3"});
}

TEST_F(HoldTableTest, ALateReaderDoesNotCountInTheHoldThatFollowed) {
  ASSERT_TRUE(Put("h", 100, 1));
  const auto late = Use("h");
  holds_.LoseUses("session");
  Pass(100);
  holds_.Tick();
  EXPECT_EQ(Outcomes(), Lines{"h expired 0"});
  ASSERT_TRUE(Put("h", 100, 1));
  holds_.EndUse(*late, true);
  EXPECT_EQ(Outcomes(), Lines{"h expired 0"});
  EXPECT_EQ(StateOf("h"), HoldState::kActive);
}

TEST_F(HoldTableTest, AReaderThatWantsItForTooLongIsRefused) {
  ASSERT_TRUE(Put("h", 1000));
  wire::HoldUse use = UseOf("h");
  use.for_ms = 3'700'001;
  EXPECT_EQ(holds_.Use(use, "").error().code, ErrorCode::kInvalidArgument);
  use.for_ms = 3'700'000;
  EXPECT_TRUE(holds_.Use(use, ""));
}

TEST_F(HoldTableTest, CoversItsBlocksAndNoOthers) {
  ASSERT_TRUE(Put("h", 1000));
  EXPECT_TRUE(Use("h", {{5, 1, 2, 2}}));
  EXPECT_EQ(CodeOfUse("h", {{1, 3}}), ErrorCode::kOutOfRange);
  EXPECT_EQ(CodeOfUse("h", {{0}}), ErrorCode::kOutOfRange);
  EXPECT_EQ(CodeOfUse("h", {{6}}), ErrorCode::kOutOfRange);
  EXPECT_EQ(CodeOfUse("h", std::nullopt), ErrorCode::kOutOfRange);
  wire::HoldUse other = UseOf("h");
  other.parts[0].buffers[0].name = "w";
  EXPECT_EQ(holds_.Use(other, "").error().code, ErrorCode::kOutOfRange);
  other = UseOf("h");
  ++other.parts[0].buffers[0].generation;
  EXPECT_EQ(holds_.Use(other, "").error().code, ErrorCode::kStaleGeneration);
  EXPECT_EQ(CodeOfUse("none"), ErrorCode::kNotFound);
}

TEST_F(HoldTableTest, AWholeBufferCoversEverything) {
  ASSERT_TRUE(Put("h", 1000, std::nullopt, std::nullopt));
  EXPECT_TRUE(Use("h", {{0, 7}}));
  EXPECT_TRUE(Use("h", std::nullopt));
}

TEST_F(HoldTableTest, WhatIsAskedForIsChecked) {
  EXPECT_EQ(Put("h", 0).error().field, "/ttl_ms");
  EXPECT_EQ(Put("h", 3'600'001).error().field, "/ttl_ms");
  const auto outside = Put("h", 10, std::nullopt, {{1, 8}});
  EXPECT_EQ(outside.error().code, ErrorCode::kOutOfRange);
  EXPECT_EQ(outside.error().field, "/groups/0/blocks/1");
  const auto twice =
      holds_.Put("h", {"owner", {{{"k"}, {{1}}}, {{"v", "k"}, {}}}, 10, {}}, generations_["owner"]);
  EXPECT_EQ(twice.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(twice.error().field, "/groups/1/buffers/1");
  const auto unknown = holds_.Put("h", {"owner", {{{"k", "none"}, {}}}, 10, {}}, 1);
  EXPECT_EQ(unknown.error().code, ErrorCode::kUnregistered);
  EXPECT_EQ(unknown.error().field, "/groups/0/buffers/1");
}

TEST_F(HoldTableTest, TheSameAgainRenewsItAndAnotherIsAConflict) {
  ASSERT_TRUE(Put("h", 100));
  Pass(90);
  EXPECT_TRUE(Put("h", 100));
  Pass(90);
  holds_.EndUse(*Use("h"), true);
  EXPECT_EQ(Put("h", 100, 3).error().code, ErrorCode::kConflict);
  EXPECT_EQ(Put("h", 100, std::nullopt, {{1}}).error().code, ErrorCode::kConflict);
  EXPECT_TRUE(holds_.Release("owner", "h"));
  EXPECT_EQ(Outcomes(), Lines{"h released 1"});
  EXPECT_TRUE(Put("h", 100, 3));
  EXPECT_TRUE(Use("h"));
}

TEST_F(HoldTableTest, HasRoomForSoMany) {
  for (const char* id : {"a", "b", "c", "d"}) {
    ASSERT_TRUE(Put(id, 100)) << id;  // two buffers and two runs each
  }
  EXPECT_EQ(Put("e", 100, std::nullopt, {{1}}).error().code, ErrorCode::kResourceExhausted);
  EXPECT_TRUE(holds_.Release("owner", "a"));
  EXPECT_EQ(Put("e", 100, std::nullopt, {{1, 3, 5}}).error().code, ErrorCode::kResourceExhausted);
  EXPECT_TRUE(Put("e", 100, std::nullopt, {{1}}));
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(Use("e"));
  EXPECT_EQ(CodeOfUse("e"), ErrorCode::kResourceExhausted);
  for (const char* id : {"b", "c", "d"}) EXPECT_TRUE(holds_.Release("owner", id));
  EXPECT_EQ(holds_.Get("owner", "b").error().code, ErrorCode::kNotFound);  // forgotten by now
}

TEST_F(HoldTableTest, AnIdThatIsUsedAgainKeepsItsLastEnd) {
  for (int i = 0; i < 5; ++i) {  // of two that are kept
    ASSERT_TRUE(Put("h", 100));
    const auto released = holds_.Release("owner", "h");
    ASSERT_TRUE(released) << i << ": " << released.error().message;
    EXPECT_EQ(released->state, HoldState::kReleased);
    EXPECT_EQ(StateOf("h"), HoldState::kReleased);
  }
  ASSERT_TRUE(Put("other", 100));
  EXPECT_TRUE(holds_.Release("owner", "other"));
  EXPECT_EQ(StateOf("h"), HoldState::kReleased);
  ASSERT_TRUE(Put("another", 100));
  EXPECT_TRUE(holds_.Release("owner", "another"));
  EXPECT_EQ(holds_.Get("owner", "h").error().code, ErrorCode::kNotFound);  // two have ended since
}

TEST_F(HoldTableTest, EndsWithItsWorkload) {
  ASSERT_TRUE(Put("h", 100));
  const auto use = Use("h");
  holds_.EndWorkload("owner", generations_["owner"] + 1);
  EXPECT_EQ(holds_.List("owner", 10).size(), 1u);
  holds_.EndWorkload("owner", generations_["owner"]);
  EXPECT_TRUE(holds_.List("", 10).empty());
  EXPECT_EQ(CodeOfUse("h"), ErrorCode::kNotFound);
  holds_.EndUse(*use, true);
  EXPECT_TRUE(Outcomes().empty());
}

TEST_F(HoldTableTest, IsOfOneLifeOfItsWorkload) {
  const uint64_t first = generations_["owner"];
  ASSERT_TRUE(Put("h", 1000));
  EXPECT_EQ(holds_.Extend("owner", first + 1, "h", 1000).error().code, ErrorCode::kNotFound);
  ASSERT_TRUE(workloads_.Remove("owner", "deleted"));
  EXPECT_EQ(Put("late", 1000).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(holds_.size(), 1u);
  holds_.EndWorkload("owner", first);
  EXPECT_EQ(holds_.size(), 0u);
}

}  // namespace
}  // namespace gantry::engine
