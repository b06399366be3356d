#include "sidecar/metrics/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

#include "sidecar/metrics/metric_labels.h"
#include "tests/sidecar/metrics/exposition.h"

namespace gantry::metrics {
namespace {

using ::testing::HasSubstr;

TransferSample Read64KiB() {
  TransferSample sample;
  sample.operation = wire::Operation::kRead;
  sample.path = wire::Path::kShm;
  sample.bytes = 65536;
  sample.descriptors_in = 16;
  sample.descriptors_out = 2;
  sample.chunks_succeeded = 2;
  sample.seconds = 40e-6;
  sample.admit_seconds = 5e-6;
  sample.queue_seconds = 3e-6;
  sample.move_seconds = 30e-6;
  return sample;
}

TEST(Metrics, EverySeriesIsThereFromTheStart) {
  const Metrics metrics("1.2.3");
  const Exposition now(metrics.Text());
  EXPECT_EQ(now.At(R"(gantry_access_errors_total{path="shm",reason="stale_generation"})"), 0);
  EXPECT_EQ(now.At(R"(gantry_access_errors_total{path="none",reason="out_of_range"})"), 0);
  EXPECT_EQ(now.At(R"(gantry_chunks{device="none"})"), 0);
  EXPECT_EQ(now.At(R"(gantry_transfers_total{op="write",outcome="expired",path="rdma"})"), 0);
  for (const std::string_view reason : kPathObstacleNames) {
    for (const char* const to : {"bounce", "tcp"}) {
      EXPECT_EQ(now.At("gantry_path_fallbacks_total{from=\"rdma\",reason=\"" + std::string(reason) +
                       "\",to=\"" + to + "\"}"),
                0);
    }
  }
  EXPECT_EQ(now.At("gantry_events_lost_total"), 0);
  EXPECT_EQ(now.At(R"(gantry_build_info{version="1.2.3"})"), 1);
}

TEST(Metrics, CountsATransfer) {
  Metrics metrics("test");
  metrics.TransferEnded(Read64KiB());
  metrics.TransferEnded(Read64KiB());
  const Exposition now(metrics.Text());
  EXPECT_EQ(now.At(R"(gantry_transfers_total{op="read",outcome="succeeded",path="shm"})"), 2);
  EXPECT_EQ(now.At(R"(gantry_transfer_bytes_total{op="read",path="shm"})"), 131072);
  EXPECT_EQ(now.At(R"(gantry_transfer_bytes_total{op="write",path="shm"})"), 0);
  EXPECT_EQ(now.At(R"(gantry_transfer_chunks_total{op="read",outcome="succeeded",path="shm"})"), 4);
  EXPECT_EQ(now.At(R"(gantry_transfer_descriptors_total{stage="submitted"})"), 32);
  EXPECT_EQ(now.At(R"(gantry_transfer_descriptors_total{stage="merged"})"), 4);
  EXPECT_EQ(now.At(R"(gantry_transfer_duration_seconds_count{op="read",path="shm"})"), 2);
  EXPECT_EQ(now.At(R"(gantry_transfer_size_bytes_bucket{path="shm",le="65536"})"), 2);
  EXPECT_EQ(now.At(R"(gantry_transfer_stage_duration_seconds_count{stage="move"})"), 2);
}

TEST(Metrics, ARejectedTransferDoesNotTouchTheDurations) {
  Metrics metrics("test");
  TransferSample sample;
  sample.outcome = Outcome::kRejected;
  metrics.TransferEnded(sample);
  sample.path = wire::Path::kShm;
  metrics.TransferEnded(sample);
  const Exposition now(metrics.Text());
  EXPECT_EQ(now.At(R"(gantry_transfers_total{op="read",outcome="rejected",path="none"})"), 1);
  EXPECT_EQ(now.At(R"(gantry_transfers_total{op="read",outcome="rejected",path="shm"})"), 1);
  EXPECT_EQ(now.At(R"(gantry_transfer_duration_seconds_count{op="read",path="shm"})"), 0);
}

TEST(Metrics, TellsAccessErrorsFromTransportErrorsAndMistakes) {
  Metrics metrics("test");
  for (int code = 0; code < kErrorCodeCount; ++code) {
    if (static_cast<ErrorCode>(code) == ErrorCode::kSidecarLost) continue;  // the client's alone
    metrics.AccessError(wire::Path::kShm, static_cast<ErrorCode>(code));
    metrics.TransportError(wire::Path::kTcp, static_cast<ErrorCode>(code));
    const bool access = AccessReasonOf(static_cast<ErrorCode>(code)).has_value();
    const bool transport = TransportReasonOf(static_cast<ErrorCode>(code)).has_value();
    EXPECT_FALSE(access && transport) << InfoOf(static_cast<ErrorCode>(code)).name;
  }
  const Exposition now(metrics.Text());
  for (const std::string_view reason : kAccessReasonNames) {
    const std::string name(reason);
    EXPECT_GE(now.At("gantry_access_errors_total{path=\"shm\",reason=\"" + name + "\"}"), 1);
  }
  for (const std::string_view reason : kTransportReasonNames) {
    const std::string name(reason);
    EXPECT_EQ(now.At("gantry_transport_errors_total{path=\"tcp\",reason=\"" + name + "\"}"), 1);
  }
}

TEST(Metrics, CountsFallbacksByWhatKeptThemOffRdma) {
  Metrics metrics("test");
  metrics.RdmaFallback(wire::Path::kTcp, PathObstacle::kFailed);
  metrics.RdmaFallback(wire::Path::kTcp, PathObstacle::kFailed);
  metrics.RdmaFallback(wire::Path::kBounce, PathObstacle::kNotRegistered);
  const Exposition now(metrics.Text());
  const auto count = [&](const std::string& reason, const std::string& to) {
    return now.At(R"(gantry_path_fallbacks_total{from="rdma",reason=")" + reason + R"(",to=")" +
                  to + "\"}");
  };
  EXPECT_EQ(count("failed", "tcp"), 2);
  EXPECT_EQ(count("not_registered", "bounce"), 1);
  EXPECT_EQ(count("not_registered", "tcp"), 0);
  EXPECT_EQ(count("failed", "bounce"), 0);
}

TEST(Metrics, CountsPeersOfTheNodeThatAreReachedOverTcp) {
  Metrics metrics("test");
  metrics.NodeFallback(wire::Path::kShm, wire::Path::kTcp);
  metrics.NodeFallback(wire::Path::kShm, wire::Path::kTcp);
  metrics.NodeFallback(wire::Path::kIpc, wire::Path::kRdma);
  const Exposition now(metrics.Text());
  const auto count = [&](const std::string& from, const std::string& to) {
    return now.At("gantry_path_fallbacks_total{from=\"" + from + R"(",reason="over_tcp",to=")" +
                  to + "\"}");
  };
  EXPECT_EQ(count("shm", "tcp"), 2);
  EXPECT_EQ(count("ipc", "rdma"), 1);
  EXPECT_EQ(count("ipc", "tcp"), 0);
}

TEST(Metrics, SaysWhatCopiedGpuMemoryAndWhy) {
  Metrics metrics("test");
  TransferSample sample = Read64KiB();
  sample.path = wire::Path::kIpc;
  for (size_t kind = 0; kind < kGpuJobKinds.size(); ++kind) sample.gpu_jobs[kind] = kind;
  metrics.TransferEnded(sample);
  metrics.TransferEnded(sample);
  const Exposition now(metrics.Text());
  for (size_t kind = 0; kind < kGpuJobKinds.size(); ++kind) {
    const std::string labels = "{plan=\"" + std::string(kGpuJobKinds[kind].plan) + "\",reason=\"" +
                               std::string(kGpuJobKinds[kind].reason) + "\"}";
    EXPECT_EQ(now.At("gantry_ipc_jobs_total" + labels), static_cast<double>(2 * kind)) << labels;
  }
}

TEST(Metrics, NoCallerCanMakeANewSeries) {
  Metrics metrics("test");
  const size_t before = Exposition(metrics.Text()).series.size();
  for (int i = 0; i < 1000; ++i) {
    const std::string strange = "/strange/" + std::to_string(i);
    metrics.HttpRequest(strange, "GET", 404, 0.1);
    metrics.HttpRequest("/v1/buffers", "BREW", 405, 0.1);
    metrics.HttpRequest("/v1/buffers", "GET", 100 + i, 0.1);
    metrics.WorkloadEnded(strange);
  }
  metrics.RdmaFallback(wire::Path::kIpc, PathObstacle::kPeer);
  metrics.NodeFallback(wire::Path::kTcp, wire::Path::kTcp);
  metrics.AccessError(std::nullopt, ErrorCode::kOutOfRange);
  const Exposition after(metrics.Text());
  EXPECT_EQ(after.series.size(), before);
  EXPECT_LT(before, 300u * wire::kPathCount);
  EXPECT_EQ(after.At(R"(gantry_workload_ends_total{reason="other"})"), 1000);
  EXPECT_EQ(after.At(R"(gantry_http_requests_total{code="4xx",method="other",route="other"})"),
            2000);
}

TEST(Metrics, KnowsEachEndpointByItsRouteAndMethod) {
  const auto endpoints = HttpEndpoints();
  for (size_t i = 0; i < endpoints.size(); ++i) {
    EXPECT_EQ(EndpointIndex(endpoints[i].route, endpoints[i].method), i);
    EXPECT_EQ(HttpRoutes()[RouteIndex(endpoints[i].route)], endpoints[i].route);
  }
}

TEST(Metrics, AsksTheGaugeSourceAtEachScrape) {
  Metrics metrics("test");
  uint64_t scrapes = 0;
  metrics.SetGaugeSource([&scrapes] {
    GaugeSample sample;
    sample.buffers = ++scrapes;
    sample.workers = 4;
    sample.workers_ready = 3;
    sample.worker_maps_succeeded = 7;
    sample.worker_maps_failed = 6;
    sample.peers = 5;
    sample.peers_up = 5;
    return sample;
  });
  EXPECT_EQ(Exposition(metrics.Text()).At("gantry_buffers"), 1);
  const Exposition now(metrics.Text());
  EXPECT_EQ(now.At("gantry_buffers"), 2);
  EXPECT_EQ(now.At(R"(gantry_workers{state="ready"})"), 3);
  EXPECT_EQ(now.At(R"(gantry_workers{state="not_ready"})"), 1);
  EXPECT_EQ(now.At(R"(gantry_worker_mappings_total{outcome="succeeded"})"), 7);
  EXPECT_EQ(now.At(R"(gantry_worker_mappings_total{outcome="failed"})"), 6);
  EXPECT_EQ(now.At(R"(gantry_peers{state="down"})"), 0);
}

TEST(Metrics, RdmaDevicesHaveSeriesOfTheirOwnAndWithoutOneTheirNamesAreThere) {
  Metrics metrics("test");
  const Exposition without(metrics.Text());
  EXPECT_EQ(without.At(R"(gantry_rdma_port_active{device="none"})"), 0);
  EXPECT_EQ(without.At(R"(gantry_rdma_bytes_total{device="none",op="read"})"), 0);
  metrics.SetGaugeSource([] {
    GaugeSample sample;
    sample.rdma.initiator_connections = 1;
    sample.rdma.target_connections = 2;
    sample.rdma.devices = {{"mlx5_0", true, 3, 4, 5, 6, 7, 8, 9, 10, 11}, {"mlx5_1"}};
    return sample;
  });
  const Exposition now(metrics.Text());
  const std::map<std::string, double> expected = {
      {R"(gantry_chunks{device="mlx5_0"})", 3},
      {R"(gantry_rdma_port_active{device="mlx5_0"})", 1},
      {R"(gantry_rdma_port_active{device="mlx5_1"})", 0},
      {R"(gantry_rdma_queue_pairs{device="mlx5_0"})", 4},
      {R"(gantry_rdma_work_requests_inflight{device="mlx5_0"})", 5},
      {R"(gantry_rdma_work_requests_inflight_max{device="mlx5_0"})", 6},
      {R"(gantry_rdma_work_requests_retried_total{device="mlx5_0"})", 7},
      {R"(gantry_rdma_work_requests_total{device="mlx5_0",op="read"})", 8},
      {R"(gantry_rdma_work_requests_total{device="mlx5_0",op="write"})", 9},
      {R"(gantry_rdma_bytes_total{device="mlx5_0",op="read"})", 10},
      {R"(gantry_rdma_bytes_total{device="mlx5_0",op="write"})", 11},
      {R"(gantry_rdma_bytes_total{device="mlx5_1",op="write"})", 0},
      {R"(gantry_rdma_connections{side="initiator"})", 1},
      {R"(gantry_rdma_connections{side="target"})", 2}};
  for (const auto& [series, value] : expected) EXPECT_EQ(now.At(series), value) << series;
  EXPECT_EQ(now.At(R"(gantry_chunks{device="none"})"), -1);
}

TEST(Metrics, TellsAboutTheProcess) {
  const Metrics metrics("test");
  const Exposition now(metrics.Text());
  const auto unix_now = static_cast<double>(std::chrono::duration_cast<std::chrono::seconds>(
                                                std::chrono::system_clock::now().time_since_epoch())
                                                .count());
  EXPECT_NEAR(now.At("process_start_time_seconds"), unix_now, 120);
  EXPECT_GT(now.At("process_resident_memory_bytes"), 1 << 20);
  EXPECT_GT(now.At("process_virtual_memory_bytes"), now.At("process_resident_memory_bytes"));
  EXPECT_GE(now.At("process_open_fds"), 3);
  EXPECT_GE(now.At("process_max_fds"), now.At("process_open_fds"));
  EXPECT_GE(now.At("process_cpu_seconds_total"), 0);
}

TEST(Metrics, RefusesAnAddressThatItCannotServe) {
  Metrics metrics("test");
  const auto refused = metrics.Listen("203.0.113.1:1");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(refused.error().message, HasSubstr("203.0.113.1:1"));
  const auto port = metrics.Listen("127.0.0.1:0");
  ASSERT_TRUE(port) << port.error().message;
  EXPECT_GT(*port, 0);
}

TEST(Metrics, CountsExactlyFromManyThreads) {
  Metrics metrics("test");
  constexpr int kThreads = 4, kEach = 5000;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&metrics] {
        for (int n = 0; n < kEach; ++n) metrics.TransferEnded(Read64KiB());
      });
    }
  }
  EXPECT_EQ(Exposition(metrics.Text())
                .At(R"(gantry_transfers_total{op="read",outcome="succeeded",path="shm"})"),
            kThreads * kEach);
}

// The budget is 2 us; ten times as much is allowed for a loaded machine or a sanitizer.
TEST(Metrics, ATransferCostsLittle) {
  Metrics metrics("test");
  constexpr int kCount = 20'000;
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kCount; ++i) metrics.TransferEnded(Read64KiB());
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
  RecordProperty("nanoseconds_per_transfer", static_cast<int>(spent.count() / kCount * 1e9));
  EXPECT_LT(spent.count() / kCount, 20e-6);
}

}  // namespace
}  // namespace gantry::metrics
