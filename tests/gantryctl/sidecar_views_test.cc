#include "gantryctl/sidecar_views.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace gantry::gantryctl {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(SidecarViews, ShowBuffersWithTheirBlocksAndPaths) {
  const json answer = json::parse(R"({"buffers":[{
    "id":"b1","name":"kv.0","workload":"decode","generation":"00","state":"active",
    "length":1073741824,"pieces":[{},{}],"access":["remote_read","remote_write"],
    "layout":{"block_bytes":65536,"block_stride":65536,"blocks":16384},
    "paths":[{"path":"shm","available":true},{"path":"tcp","available":true},
             {"path":"ipc","available":false,"reason":"no GPU"}],"uses":3}]})");
  const std::string text = BuffersText(answer);
  for (const char* part : {"decode", "kv.0", "b1", "active", "1 GiB", "16384 x 64 KiB", "shm, tcp",
                           "remote_read,remote_write"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  EXPECT_THAT(text, Not(HasSubstr("ipc")));
}

TEST(SidecarViews, SayWhyAPathOfAPeerIsNotTaken) {
  const json answer = json::parse(R"({"peers":[{"name":"b","address":"unix:/n/b.peer.sock",
    "state":"up","path":"shm","rtt_us":130,"version":"0.1.0",
    "paths":[{"path":"ipc","available":false,"reason":"host memory"},
             {"path":"shm","available":true}]}]})");
  EXPECT_THAT(PeersText(answer), HasSubstr("not ipc: host memory"));
  EXPECT_THAT(PeersText(answer), HasSubstr("130 us"));
}

TEST(SidecarViews, SayWhichSideMovesTheBytes) {
  const auto text = [](const char* members) {
    return TransfersText(json::parse(R"({"transfers":[{"workload":"w","id":"t-1","op":"read",)" +
                                     std::string(members) + R"("path":"tcp","bytes":1}]})"));
  };
  EXPECT_THAT(text(R"("peer":"pod-b","executor":"self",)"), HasSubstr("  pod-b  "));
  EXPECT_THAT(text(R"("peer":"pod-b","executor":"peer",)"), HasSubstr("  pod-b (executes)  "));
  EXPECT_THAT(text(R"("peer":"pod-b","executor":"self","requested_by":"pod-b",)"),
              HasSubstr("  pod-b (asked for it)  "));
  EXPECT_THAT(text(R"("peer":"","executor":7,"requested_by":[],)"), Not(HasSubstr("(")));
}

TEST(SidecarViews, AreSentencesWhenThereIsNothing) {
  for (const json& nothing : {json::object(), json(), json::parse(R"({"buffers":[],"peers":[],
                                                  "workloads":[],"transfers":[]})")}) {
    EXPECT_EQ(BuffersText(nothing), "no buffer is registered\n");
    EXPECT_THAT(PeersText(nothing), HasSubstr("no peer is known"));
    EXPECT_EQ(WorkloadsText(nothing), "no workload is registered\n");
    EXPECT_EQ(TransfersText(nothing), "no transfer is under way\n");
  }
}

TEST(SidecarViews, SurviveAnswersOfAnotherShape) {
  const json strange = json::parse(R"({"buffers":[1,null,"x",{"pieces":7,"access":{},"layout":[],
    "paths":3,"length":-5,"uses":"many"}],"peers":[{"rtt_us":"x","paths":[[]],"error":[]}],
    "workloads":[{"pid":-1}],"transfers":[{"error":7,"bytes":"x","timings":[]}],
    "workers":{"a":1},"paths":[7],"totals":[1,2]})");
  EXPECT_FALSE(BuffersText(strange).empty());
  EXPECT_FALSE(PeersText(strange).empty());
  EXPECT_FALSE(WorkloadsText(strange).empty());
  EXPECT_FALSE(TransfersText(strange).empty());
  EXPECT_FALSE(StatusText(strange, true).empty());
  EXPECT_FALSE(ProgressLine(strange, 80).empty());
}

TEST(SidecarViews, AProgressLineFitsTheTerminal) {
  const json transfer = {{"workload", "w"}, {"id", "t-1"},        {"bytes", 1 << 20},
                         {"path", "shm"},   {"state", "running"}, {"bytes_moved", 1 << 19}};
  EXPECT_EQ(ProgressLine(transfer, 200),
            "w/t-1 [##########..........] 50 %  512 KiB of 1 MiB  shm  running");
  EXPECT_EQ(ProgressLine(transfer, 12).size(), 12u);
}

TEST(SidecarViews, HealthyMeansReadyWithEveryWorker) {
  const json full = json::parse(R"({"workers":[{"state":"ready"},{"state":"ready"}]})");
  const json short_pool = json::parse(R"({"workers":[{"state":"ready"},{"state":"starting"}]})");
  EXPECT_TRUE(IsHealthy(full, true));
  EXPECT_FALSE(IsHealthy(full, false));
  EXPECT_FALSE(IsHealthy(short_pool, true));
  EXPECT_THAT(StatusText(short_pool, true), HasSubstr("1 of 2 ready"));
  EXPECT_THAT(StatusText(full, false), HasSubstr("NOT READY"));
}

}  // namespace
}  // namespace gantry::gantryctl
