// Whoever drives the engine may be a thread that answers requests and catches what they throw. In
// the middle of a change it must not get that far: others would wait for ever.
#include <gtest/gtest.h>

#include "sidecar/transfer/transfer_engine.h"
#include "tests/fakes/engine_fixture.h"

namespace gantry::engine {
namespace {

using testing::In;
using testing::TestArena;

class OutOfMemoryDeathTest : public testing::EngineFixture {
 protected:
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EngineFixture::SetUp();
    AddWorkload("a");
    AddWorkload("b");
    ASSERT_TRUE(Register("a", {&arena_a_}, {{"k", {{0, 0, kArena}}, {}, {}}}));
    ASSERT_TRUE(Register("b", {&arena_b_}, {{"k", {{0, 0, kArena}}, {}, {true, true}}}));
  }

  TestArena arena_a_{kArena, 1};
  TestArena arena_b_{kArena, 2};
};

TEST_F(OutOfMemoryDeathTest, TheProcessEndsWhereACallerDrives) {
  const auto submit = [this] {
    pool_.RunOutOfMemory();
    (void)engine_->Submit(WithRange(Between("a", "k", "b", "k"), 0, 0, 4096),
                          In(milliseconds(5000)));
  };
  EXPECT_DEATH(submit(), "bad_alloc");
}

}  // namespace
}  // namespace gantry::engine
