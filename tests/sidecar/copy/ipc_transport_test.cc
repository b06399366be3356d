// The ipc transport over worker processes, from one GPU to another: of the fake driver, or of the
// machine's. This process owns the memory, and each arena is an image of it.
#include "sidecar/copy/ipc_transport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <map>
#include <string>

#include "lib/gpu/gpu_drivers.h"
#include "sidecar/copy/shm_transport.h"
#include "sidecar/memory/gpu_handle_file.h"
#include "sidecar/worker/pool/worker_pool.h"
#include "tests/contracts/transport_contract.h"
#include "tests/sidecar/copy/pool_processes.h"
#include "tests/sidecar/worker/lone_driver.h"

namespace gantry::transport {
namespace {

using testing::TestArena;

// The ipc transport, and the shm transport that polls the scheduler for it, as one.
class IpcWithWorkers final : public Transport {
 public:
  IpcWithWorkers(const CopySchedulerOptions& options, worker::WorkerPool& pool)
      : copies_(options, pool, pool), shm_(copies_), ipc_([] { return Status(); }, copies_) {}

  TransportTraits traits() const override { return ipc_.traits(); }
  Status Probe() override { return ipc_.Probe(); }
  Status CanCarry(const LocalSide& local,
                  const std::vector<RemoteAllocation>& remote) const override {
    return ipc_.CanCarry(local, remote);
  }
  Status CanReach(const memory::MappedAllocation& local,
                  const RemoteAllocation& remote) const override {
    return ipc_.CanReach(local, remote);
  }
  std::unique_ptr<Operation> Start(std::shared_ptr<const MovePlan> plan, int priority,
                                   uint64_t token) override {
    return ipc_.Start(std::move(plan), priority, token);
  }
  PollOutcome Poll(std::vector<uint64_t>* ready_tokens) override {
    PollOutcome outcome = ipc_.Poll(ready_tokens);
    outcome.Add(shm_.Poll(ready_tokens));
    return outcome;
  }

 private:
  CopyScheduler copies_;
  ShmTransport shm_;
  IpcTransport ipc_;
};

std::unique_ptr<worker::WorkerPool> NewPool() {
  worker::WorkerPoolOptions options;
  options.restart_backoff_min_ms = milliseconds(1);
  options.map_timeout_ms = milliseconds(2'000);  // of workers that a test has stopped
  auto pool = worker::WorkerPool::Create(options);
  EXPECT_TRUE(pool) << pool.error().message;
  return *std::move(pool);
}

class IpcHarness final : public testing::TransportHarness {
 public:
  // How the memory is handed over, and what copies it.
  struct Kind {
    wire::GpuExport form = wire::GpuExport::kHandle;
    GpuCopyPolicy copies = GpuCopyPolicy::kAuto;
  };
  explicit IpcHarness(const Kind& kind)
      : kind_(kind), pool_(NewPool()), transport_({.gpu_copies = kind.copies}, *pool_) {
    auto driver = gpu::LoadGpuDriver();
    EXPECT_TRUE(driver) << driver.error().message;
    driver_ = *std::move(driver);
    const Status usable = transport_.Probe();
    EXPECT_TRUE(usable) << usable.error().message;
  }

  Transport& transport() override { return transport_; }
  std::shared_ptr<const memory::MappedAllocation> Local(const TestArena& arena) override {
    return OnGpu(arena, 0).mapped;
  }
  RemoteAllocation Remote(const TestArena& arena) override {
    return {OnGpu(arena, static_cast<int>(driver_->devices().size()) - 1).mapped};
  }
  std::shared_ptr<const memory::MappedAllocation> OnHost(const TestArena& arena) {
    return *memory::MappedAllocation::Create(*pool_, arena.source());
  }
  void Refresh(TestArena& arena) override {
    const OfArena& held = memories_.at(&arena);
    EXPECT_TRUE(held.context->CopyToHost(arena.data(), held.memory->range().base, arena.size()));
  }
  void Wait() override { worker::WaitAlone(*pool_, Clock::now() + milliseconds(20)); }
  void KillCarrier() override { worker::SignalWorkers(*pool_, SIGKILL, 1); }
  void HangCarrier() override { worker::StopWorkers(*pool_); }

 private:
  struct OfArena {
    std::unique_ptr<gpu::GpuContext> context;
    std::unique_ptr<gpu::GpuMemory> memory;
    std::shared_ptr<const memory::MappedAllocation> mapped;
  };

  OfArena& OnGpu(const TestArena& arena, int ordinal) {
    OfArena& held = memories_[&arena];
    if (held.mapped != nullptr) return held;
    held.context = *driver_->OpenContext(ordinal);
    held.memory = kind_.form == wire::GpuExport::kHandle
                      ? *held.context->Allocate(arena.size())
                      : *held.context->AllocatePieces(arena.size(), arena.size());
    const gpu::DeviceAddress base = held.memory->range().base;
    EXPECT_TRUE(held.context->CopyFromHost(base, arena.data(), arena.size()));
    auto mapped = memory::MappedAllocation::Create(*pool_, SourceOf(base, arena.size()));
    EXPECT_TRUE(mapped) << mapped.error().message;
    held.mapped = *std::move(mapped);
    return held;
  }
  // As the owner's client exports it.
  memory::AllocationSource SourceOf(gpu::DeviceAddress base, uint64_t size) const {
    const gpu::PointerInfo info = *driver_->Resolve(NumberOf(base));
    memory::AllocationSource source;
    source.kind = wire::MemoryKind::kGpu;
    source.size = size;
    source.writable = true;
    source.exporter = "the test";
    source.gpu = {kind_.form, driver_->devices()[static_cast<size_t>(info.device)].uuid,
                  info.buffer_id, ::getpid()};
    if (kind_.form == wire::GpuExport::kPiece) {
      source.fd = std::make_shared<UniqueFd>(*driver_->ExportPiece(base));
      return source;
    }
    if (info.is_shared_by_dma_buf) {
      auto exported = *driver_->ExportDmaBuf({base, size});
      source.gpu.form = wire::GpuExport::kDmaBuf;
      source.gpu.fd_offset = exported.offset;
      source.fd = std::make_shared<UniqueFd>(std::move(exported.fd));
      return source;
    }
    const gpu::IpcHandle handle = *driver_->ExportIpc(base);
    source.fd = std::make_shared<UniqueFd>(*memory::MakeHandleFile(
        {reinterpret_cast<const char*>(handle.bytes.data()), handle.bytes.size()}));
    return source;
  }

  const Kind kind_;
  std::unique_ptr<gpu::GpuDriver> driver_;
  std::unique_ptr<worker::WorkerPool> pool_;
  IpcWithWorkers transport_;
  std::map<const TestArena*, OfArena> memories_;  // before the pool, which has it mapped
};

testing::MakeTransportHarness Make(wire::GpuExport form, GpuCopyPolicy copies) {
  return [=] { return std::make_unique<IpcHarness>(IpcHarness::Kind{form, copies}); };
}

using testing::TransportContract;
INSTANTIATE_TEST_SUITE_P(IpcByEngines, TransportContract,
                         ::testing::Values(Make(wire::GpuExport::kHandle,
                                                GpuCopyPolicy::kEngines)));
INSTANTIATE_TEST_SUITE_P(IpcByKernel, TransportContract,
                         ::testing::Values(Make(wire::GpuExport::kHandle, GpuCopyPolicy::kKernel)));
INSTANTIATE_TEST_SUITE_P(IpcOfPieces, TransportContract,
                         ::testing::Values(Make(wire::GpuExport::kPiece, GpuCopyPolicy::kAuto)));

TEST(IpcTransportTest, SaysWhyItCannotReach) {
  IpcHarness harness({});
  const TestArena arena(2 << 20);
  const auto local = harness.Local(arena);
  const Status unmapped = harness.transport().CanReach(*local, {nullptr, nullptr, "no way there"});
  ASSERT_FALSE(unmapped);
  EXPECT_EQ(unmapped.error().code, ErrorCode::kPathUnavailable);
  EXPECT_EQ(unmapped.error().message, "no way there");
  EXPECT_TRUE(harness.transport().CanReach(*local, {local}));
  const TestArena sealed(4096);
  const TestArena unsealed(4096, TestArena::Unsealed());
  EXPECT_TRUE(harness.transport().CanReach(*local, {harness.OnHost(sealed)}));
  const auto short_soon = harness.OnHost(unsealed);
  for (const Status& refused : {harness.transport().CanReach(*local, {short_soon}),
                                harness.transport().CanReach(*short_soon, {local})}) {
    ASSERT_FALSE(refused);
    EXPECT_NE(refused.error().message.find("can shrink"), std::string::npos);
  }
}

}  // namespace
}  // namespace gantry::transport
