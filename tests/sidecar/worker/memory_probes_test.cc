// MemoryMapper::Compare of the pool: each worker looks through its own mapping.
#include <gtest/gtest.h>
#include <signal.h>

#include <memory>
#include <string>
#include <vector>

#include "sidecar/worker/pool/worker_pool.h"
#include "sidecar/worker/process/probe_list.h"
#include "tests/fakes/test_arena.h"

namespace gantry::worker {
namespace {

using ::gantry::testing::TestArena;
using memory::MemoryProbe;

constexpr uint64_t kArenaBytes = 1 << 20;

class MemoryProbes : public ::testing::Test {
 protected:
  MemoryProbes() {
    WorkerPoolOptions options;
    options.map_lag_ms = milliseconds(300);
    pool_ = WorkerPool::Create(options).value();
    mapping_ = pool_->Map(arena_.source()).value();
  }
  // What the arena holds there now.
  MemoryProbe At(uint64_t offset, uint32_t length) const {
    MemoryProbe probe{mapping_, offset, length, {}};
    if (offset < kArenaBytes) std::memcpy(probe.bytes.data(), arena_.data() + offset, length);
    return probe;
  }

  TestArena arena_{kArenaBytes};
  std::unique_ptr<WorkerPool> pool_;
  memory::MappingId mapping_;
};

TEST_F(MemoryProbes, TheFirstByteTheLastOneAndReadOnlyMemory) {
  const std::vector<MemoryProbe> probes = {At(0, 16), At(kArenaBytes - 1, 1), At(4095, 2)};
  const auto outcome = pool_->Compare(probes);
  ASSERT_TRUE(outcome) << outcome.error().message;
  EXPECT_FALSE(*outcome);
  const auto read_only = pool_->Map(arena_.source(/*writable=*/false)).value();
  MemoryProbe probe = At(7, 9);
  probe.mapping = read_only;
  EXPECT_FALSE(pool_->Compare({&probe, 1}).value());
}

TEST_F(MemoryProbes, AByteThatDiffersIsFoundInEveryPositionAndBehindManyProbes) {
  for (uint32_t i = 0; i < 16; ++i) {
    const MemoryProbe probe = At(100, 16);
    arena_.data()[100 + i] ^= 1;
    const auto mismatch = pool_->Compare({&probe, 1}).value();
    ASSERT_TRUE(mismatch) << i;
    EXPECT_EQ(mismatch->found.size(), 32U);
    EXPECT_EQ(mismatch->finder, "copy worker 0");
    arena_.data()[100 + i] ^= 1;
  }
  std::vector<MemoryProbe> many;
  for (uint64_t i = 0; i < 2 * kProbesPerListMax + 2; ++i) many.push_back(At(i * 16, 16));
  EXPECT_FALSE(pool_->Compare(many).value());
  many.back().bytes[0] = static_cast<char>(~many.back().bytes[0]);
  EXPECT_EQ(pool_->Compare(many).value()->probe, many.size() - 1);
}

TEST_F(MemoryProbes, BytesBehindTheProbeDoNotCount) {
  MemoryProbe probe = At(0, 3);
  probe.bytes[3] = static_cast<char>(~arena_.data()[3]);
  EXPECT_FALSE(pool_->Compare({&probe, 1}).value());
}

// The workers are told by the sidecar alone, and check it all the same.
TEST_F(MemoryProbes, WhatLiesOutsideOrIsNotMappedIsAnError) {
  MemoryProbe wrong[] = {At(kArenaBytes - 1, 1), At(UINT64_MAX, 1), At(0, 1), At(0, 1), At(0, 1)};
  wrong[0].length = 2;
  wrong[2].length = 0;
  wrong[3].length = 17;
  ++wrong[4].mapping.generation;
  for (const MemoryProbe& probe : wrong) {
    const auto outcome = pool_->Compare({&probe, 1});
    ASSERT_FALSE(outcome) << &probe - wrong;
    EXPECT_EQ(outcome.error().code,
              &probe == &wrong[4] ? ErrorCode::kStaleGeneration : ErrorCode::kOutOfRange);
  }
  const MemoryProbe right = At(0, 16);
  EXPECT_FALSE(pool_->Compare({&right, 1}).value()) << "they go on";
}

TEST_F(MemoryProbes, EveryWorkerIsAskedAndOneThatHangsIsReplaced) {
  const pid_t second = pool_->workers()[1].pid;
  ASSERT_EQ(::kill(second, SIGSTOP), 0);
  const MemoryProbe probe = At(0, 16);
  const auto outcome = pool_->Compare({&probe, 1});
  ASSERT_FALSE(outcome) << "nobody knows what it saw";
  EXPECT_EQ(outcome.error().code, ErrorCode::kWorkerLost);
  EXPECT_NE(pool_->workers()[1].state, WorkerState::kUsable);
  const auto again = pool_->Compare({&probe, 1});
  ASSERT_TRUE(again) << again.error().message;  // by the other; a successor maps for itself
  EXPECT_FALSE(*again);
}

TEST(ProbeAnswers, AreReadOrRefused) {
  const auto read = ParseMismatch("7 00ff", 8);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->probe, 7U);
  EXPECT_EQ(read->found, "00ff");
  for (const char* wrong : {"8 00", "-1 00", "x", "7", "", "99999999999999999999999 00"}) {
    EXPECT_FALSE(ParseMismatch(wrong, 8)) << wrong;
  }
}

}  // namespace
}  // namespace gantry::worker
