// What is refused of a message that asks for an execution.
#include <gtest/gtest.h>

#include "lib/wire/peer.grpc.pb.h"
#include "lib/wire/peer_execution_messages.h"

namespace gantry::testing {
namespace {

namespace v1 = gantry::peer::v1;

TEST(ExecutionMessages, WhatIsWrongIsRefused) {
  wire::PeerExecution what;
  what.id = "e";
  what.proofs = {std::string(32, 'p')};
  what.operation = wire::Operation::kWrite;
  what.callers = {{"", "w", "k", 1}};
  what.callees = {{"", "o", "k", 2}, {"", "o", "v", 3}};
  what.ranges = {{0, 1, 1, 2, 3}};
  what.deadline_ms = 9;
  what.priority = -4;
  what.require_path = {wire::Path::kTcp};
  v1::ExecuteRequest good;
  wire::ToMessage(what, &good);
  const auto taken = wire::FromMessage(good);
  ASSERT_TRUE(taken) << taken.error().message;
  EXPECT_EQ(*taken, what);
  const auto refused = [&](const auto& spoil) {
    v1::ExecuteRequest message = good;
    spoil(message);
    return !wire::FromMessage(message);
  };
  EXPECT_TRUE(refused([](auto& m) { m.clear_id(); }));
  EXPECT_TRUE(refused([](auto& m) { m.set_id(std::string(200, 'x')); }));
  EXPECT_TRUE(refused([](auto& m) { m.set_proofs(0, "short"); }));
  EXPECT_TRUE(refused([](auto& m) {
    for (int i = 0; i < 8; ++i) m.add_proofs(std::string(32, 'p'));
  }));
  EXPECT_TRUE(refused([](auto& m) { m.clear_callers(); }));
  EXPECT_TRUE(refused([](auto& m) { m.clear_callees(); }));
  EXPECT_TRUE(refused([](auto& m) { m.mutable_callees(1)->set_workload("p"); }));
  EXPECT_TRUE(refused([](auto& m) { m.mutable_callers(0)->set_generation(0); }));
  EXPECT_TRUE(refused([](auto& m) { m.clear_ranges(); }));
  EXPECT_TRUE(refused([](auto& m) { m.add_ranges(1); }));
  EXPECT_TRUE(refused([](auto& m) { m.set_ranges(0, 1); }));
  EXPECT_TRUE(refused([](auto& m) { m.set_ranges(2, uint64_t{1} << 32); }));
  EXPECT_TRUE(refused([](auto& m) {
    m.clear_require_path();
    m.add_require_path(77);
  }));
}

}  // namespace
}  // namespace gantry::testing
