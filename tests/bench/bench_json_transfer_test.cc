#include "bench/bench_json_transfer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

namespace gantry::bench {
namespace {

using nlohmann::json;

JsonTransfer Asked() {
  JsonTransfer asked;
  asked.workload = "engine \"0\"";
  asked.local = "blocks";
  asked.remote = "peer/workload/blocks";
  asked.deadline_ms = 5000;
  return asked;
}

TEST(BenchJsonTransfer, NamesBuffersOrAView) {
  const std::vector<uint64_t> local = {7, 0, std::numeric_limits<uint64_t>::max()};
  const std::vector<uint64_t> remote = {1, 2, 3};
  JsonTransfer asked = Asked();
  EXPECT_EQ(json::parse(JsonTransferBody(asked, local, remote)),
            (json{{"workload", "engine \"0\""},
                  {"op", "read"},
                  {"executor", "self"},
                  {"deadline_ms", 5000},
                  {"local", {"blocks"}},
                  {"remote", {"peer/workload/blocks"}},
                  {"local_blocks", local},
                  {"remote_blocks", remote}}));
  asked.view = "v-1";
  asked.read = false;
  asked.peer_executes = true;
  EXPECT_EQ(json::parse(JsonTransferBody(asked, remote, local)), (json{{"workload", "engine \"0\""},
                                                                       {"op", "write"},
                                                                       {"executor", "peer"},
                                                                       {"deadline_ms", 5000},
                                                                       {"view", "v-1"},
                                                                       {"local_blocks", remote},
                                                                       {"remote_blocks", local}}));
}

TEST(BenchJsonTransfer, ReadsWhatTheSidecarSays) {
  for (const char* state : {"queued", "running", "stopping"}) {
    const auto going = ReadJsonTransfer(json{{"id", "t-1"}, {"state", state}}.dump());
    ASSERT_TRUE(going);
    EXPECT_FALSE(going->is_over);
    EXPECT_EQ(going->id, "t-1");
  }
  const auto over = ReadJsonTransfer(
      json{{"id", "t-1"},
           {"state", "succeeded"},
           {"bytes_moved", 4096},
           {"chunks", 2},
           {"descriptors_in", 3},
           {"descriptors_out", 1},
           {"workers", 2},
           {"path", "shm"},
           {"paths", {{{"path", "ipc"}, {"available", false}, {"chunks", 77}, {"total_us", 77}}}},
           {"failed_items", {5, 6}},
           {"executor", "peer"},
           {"timings",
            {{"admit_us", 1}, {"queue_us", 2}, {"move_us", 3}, {"copy_us", 4}, {"total_us", 9}}}}
          .dump());
  ASSERT_TRUE(over);
  EXPECT_TRUE(over->is_over);
  EXPECT_EQ(over->outcome.bytes, 4096u);
  EXPECT_EQ(over->outcome.chunks, 2u);
  EXPECT_EQ(over->outcome.descriptors_in, 3u);
  EXPECT_EQ(over->outcome.descriptors_out, 1u);
  EXPECT_EQ(over->outcome.workers, 2u);
  EXPECT_EQ(over->outcome.path, "shm");
  EXPECT_TRUE(over->outcome.by_peer);
  EXPECT_EQ(over->outcome.times.admit_us, 1);
  EXPECT_EQ(over->outcome.times.queue_us, 2);
  EXPECT_EQ(over->outcome.times.move_us, 3);
  EXPECT_EQ(over->outcome.times.copy_us, 4);
  EXPECT_EQ(over->outcome.times.total_us, 9);
}

TEST(BenchJsonTransfer, WhatDidNotSucceedIsAnError) {
  for (const char* answer : {R"({"state": "failed", "error": {"code": "peer_lost"}})",
                             R"({"state": "expired"})", R"({"state": 3})", "[]", "{", ""}) {
    const auto read = ReadJsonTransfer(answer);
    ASSERT_FALSE(read) << answer;
    EXPECT_THAT(read.error().message, ::testing::HasSubstr(answer));
  }
}

}  // namespace
}  // namespace gantry::bench
