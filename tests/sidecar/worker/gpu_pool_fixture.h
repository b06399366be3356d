// Pools whose workers use GPUs of the fake driver, and memory of those GPUs in another process.
// A test's own thread starts and polls the pool.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lib/gpu/gpu_drivers.h"
#include "sidecar/memory/gpu_handle_file.h"
#include "sidecar/worker/pool/worker_pool.h"

namespace gantry::worker {

// Of whichever vendor's driver the test runs on.
inline constexpr char kInitHangs[] = "cuInit=-2,hipInit=-2";
inline constexpr char kAttachHangs[] = "cuIpcOpenMemHandle=-2,hipIpcOpenMemHandle=-2";
inline constexpr char kNoContext[] = "cuDevicePrimaryCtxRetain=2,primary_context=2";

class GpuPoolTest : public ::testing::Test {
 protected:
  void TearDown() override { DriverFails(""); }

  // What the driver does in workers that are started from here on.
  static void DriverFails(const std::string& calls) {
    ::setenv("GANTRY_FAKE_GPU_FAIL", calls.c_str(), 1);
  }
  void Start(WorkerPoolOptions options = {}) {
    options.restart_backoff_min_ms = milliseconds(1);
    options.restart_backoff_max_ms = milliseconds(20);
    auto pool = WorkerPool::Create(options);
    ASSERT_TRUE(pool) << pool.error().message;
    pool_ = *std::move(pool);
  }
  WorkerStatus Worker(int index) const { return pool_->workers()[static_cast<size_t>(index)]; }
  // As the engine does: it settles what is left of dead workers.
  bool Eventually(const std::function<bool()>& holds, milliseconds longest = milliseconds(20'000)) {
    const TimePoint end = Clock::now() + longest;
    Completion completion;
    while (!holds() && Clock::now() < end) {
      pool_->Poll({&completion, 1});
      std::this_thread::sleep_for(milliseconds(2));
    }
    return holds();
  }
  bool IsUsable(int index) const { return Worker(index).state == WorkerState::kUsable; }
  // Kills it; another process takes its place.
  void Replace(int index) {
    const WorkerStatus before = Worker(index);
    ASSERT_EQ(::kill(before.pid, SIGKILL), 0);
    ASSERT_TRUE(Eventually([&] {
      const WorkerStatus now = Worker(index);
      return now.pid != 0 && now.pid != before.pid;
    }));
  }

  std::unique_ptr<WorkerPool> pool_;
};

// Memory of both GPUs, in another process, as the workers open it.
class GpuPoolMemory : public GpuPoolTest {
 protected:
  static constexpr uint64_t kMiB = 1 << 20;

  void SetUp() override {
    driver_ = *gpu::LoadGpuDriver();
    for (int gpu = 0; gpu < 2; ++gpu) contexts_.push_back(*driver_->OpenContext(gpu));
  }
  // All of the GPU's but `left`.
  std::unique_ptr<gpu::GpuMemory> TakeAllBut(uint64_t left, size_t gpu) {
    return *contexts_[gpu]->Allocate(contexts_[gpu]->Memory()->free - left);
  }
  memory::AllocationSource Source(const gpu::GpuMemory& memory) const {
    const gpu::PointerInfo info = *driver_->Resolve(NumberOf(memory.range().base));
    const gpu::IpcHandle handle = *driver_->ExportIpc(memory.range().base);
    memory::AllocationSource source;
    source.kind = wire::MemoryKind::kGpu;
    source.fd = std::make_shared<UniqueFd>(*memory::MakeHandleFile(
        {reinterpret_cast<const char*>(handle.bytes.data()), handle.bytes.size()}));
    source.size = memory.range().size;
    source.writable = true;
    source.gpu = {wire::GpuExport::kHandle,
                  driver_->devices()[static_cast<size_t>(info.device)].uuid, info.buffer_id,
                  ::getpid()};
    source.exporter = "the test";
    return source;
  }

  std::unique_ptr<gpu::GpuDriver> driver_;
  std::vector<std::unique_ptr<gpu::GpuContext>> contexts_;
};

}  // namespace gantry::worker
