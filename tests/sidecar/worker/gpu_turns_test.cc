// Which of a pool's workers have a context, and on which GPU, for pools of all sizes over the fake
// driver's GPUs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "sidecar/worker/pool/worker_pool.h"

namespace gantry::worker {
namespace {

struct Turns {
  int gpus = 0;
  int workers = 0;
  int gpu_workers = -1;     // --gpu-workers
  std::vector<int> places;  // of each worker; -1: none
};

void PrintTo(const Turns& turns, std::ostream* out) {
  *out << turns.workers << " workers, " << turns.gpu_workers << " of them for " << turns.gpus
       << " GPUs";
}

class GpuTurnsTest : public ::testing::TestWithParam<Turns> {
 protected:
  GpuTurnsTest() {
    ::setenv("GANTRY_FAKE_GPUS", std::to_string(GetParam().gpus).c_str(), 1);
    ::setenv("GANTRY_FAKE_GPU_FAIL", "", 1);
  }
  ~GpuTurnsTest() override { ::unsetenv("GANTRY_FAKE_GPUS"); }
};

TEST_P(GpuTurnsTest, WorkersTakeTheGpusInTurnAsFarAsItPays) {
  WorkerPoolOptions options;
  options.workers = GetParam().workers;
  options.gpu_workers = GetParam().gpu_workers;
  const auto pool = WorkerPool::Create(options);
  ASSERT_TRUE(pool) << pool.error().message;
  std::vector<int> places;
  for (const WorkerStatus& worker : (*pool)->workers()) {
    places.push_back((*pool)->gpu_of(worker.index));
    EXPECT_EQ(worker.gpu.empty(), places.back() < 0);
    EXPECT_EQ(worker.gpu.empty(), !worker.no_gpu_because.empty());
    EXPECT_FALSE(worker.asks_for_gpu) << "it is without one on purpose";
    EXPECT_EQ(worker.gpus_reached.size(), worker.gpu.empty() ? 0U : size_t(GetParam().gpus));
  }
  EXPECT_EQ(places, GetParam().places);
}

INSTANTIATE_TEST_SUITE_P(
    Pools, GpuTurnsTest,
    ::testing::Values(Turns{2, 1, -1, {0}}, Turns{2, 2, -1, {0, 1}}, Turns{2, 4, -1, {0, 1, 0, 1}},
                      Turns{2, 6, -1, {0, 1, 0, 1, 0, 1}},
                      Turns{2, 8, -1, {0, 1, 0, 1, 0, 1, -1, -1}}, Turns{2, 2, 1, {0, -1}},
                      Turns{2, 4, 3, {0, 1, 0, -1}}, Turns{2, 6, 6, {0, 1, 0, 1, 0, 1}},
                      Turns{2, 8, 8, {0, 1, 0, 1, 0, 1, 0, 1}},
                      Turns{1, 6, -1, {0, 0, 0, 0, -1, -1}}, Turns{4, 6, -1, {0, 1, 2, 3, 0, 1}},
                      Turns{3, 10, -1, {0, 1, 2, 0, 1, 2, 0, 1, 2, -1}},
                      Turns{4, 8, -1, {0, 1, 2, 3, 0, 1, 2, 3}}));

}  // namespace
}  // namespace gantry::worker
