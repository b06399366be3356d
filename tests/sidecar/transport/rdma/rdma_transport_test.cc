#include "sidecar/transport/rdma/rdma_transport.h"

#include <gtest/gtest.h>

#include "tests/contracts/transport_contract.h"
#include "tests/fakes/fake_verbs.h"
#include "tests/sidecar/transport/rdma/rdma_world.h"

namespace gantry::transport {
namespace {

using gantry::testing::FakeFabric;
using gantry::testing::FakeVerbs;

struct FakeSetup {
  std::vector<std::string> devices = {"fake0"};
  RdmaOptions options;
  uint64_t scramble = 0;  // a seed
  bool gpu_here = false;
  bool gpu_there = false;
};

class FakeRdmaHarness final : public gantry::testing::TransportHarness {
 public:
  explicit FakeRdmaHarness(const FakeSetup& setup = {})
      : here_(fabric_, Devices(setup)),
        there_(fabric_, Devices(setup)),
        world_(here_, there_, setup.options, setup.options) {
    if (setup.scramble != 0) fabric_.Scramble(setup.scramble);
    if (setup.gpu_here) world_.UseGpuHere();
    if (setup.gpu_there) world_.UseGpuThere();
  }

  Transport& transport() override { return world_.transport_; }
  std::shared_ptr<const memory::MappedAllocation> Local(
      const gantry::testing::TestArena& arena) override {
    return world_.Local(arena);
  }
  RemoteAllocation Remote(const gantry::testing::TestArena& arena) override {
    return world_.Remote(world_.Describe(arena));
  }
  bool ChunksAreSegments() const override { return false; }
  void Wait() override { world_.Wait(); }
  void KillCarrier() override { world_.target_.End("session"); }
  void HangCarrier() override { fabric_.SetProgress(FakeFabric::Progress::kByStep); }

 private:
  static std::vector<gantry::testing::FakeDeviceOptions> Devices(const FakeSetup& setup) {
    std::vector<gantry::testing::FakeDeviceOptions> devices;
    for (const std::string& name : setup.devices) {
      devices.push_back({.name = name, .dmabuf = setup.gpu_here || setup.gpu_there});
    }
    return devices;
  }

  FakeFabric fabric_;
  FakeVerbs here_;
  FakeVerbs there_;
  RdmaWorld world_;
};

// Devices that write in any order, and acknowledge what is still on its way to memory.
TEST(RdmaFlush, WhatIsReportedWrittenIsThere) {
  constexpr uint64_t kBytes = 1 << 20;
  FakeFabric fabric;
  FakeVerbs here(fabric, {{"fake0"}, {"fake1"}}), there(fabric, {{"fake0"}, {"fake1"}});
  RdmaOptions options;
  options.relaxed_ordering = true;
  options.slice_bytes = 4096;
  RdmaWorld world(here, there, options, options);
  const gantry::testing::TestArena local(kBytes, 1), remote(kBytes, 2);
  const auto allocation = world.Local(local);
  const auto target = world.Remote(world.Describe(remote));
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    fabric.Scramble(seed);
    std::memset(remote.data(), 0, kBytes);
    const auto operation = world.transport_.Start(
        RdmaWorld::PlanOf(wire::Operation::kWrite, allocation, target, 0, 0, kBytes), 0, seed);
    ASSERT_TRUE(world.Finish(*operation));
    ASSERT_FALSE(operation->error()) << operation->error()->message;
    ASSERT_EQ(std::memcmp(local.data(), remote.data(), kBytes), 0) << "seed " << seed;
    ASSERT_EQ(fabric.late_writes(), 0u);
  }
}

using gantry::testing::TransportContract;
INSTANTIATE_TEST_SUITE_P(Rdma, TransportContract,
                         ::testing::Values([] { return std::make_unique<FakeRdmaHarness>(); }));
INSTANTIATE_TEST_SUITE_P(RdmaSmallChunksManyDevices, TransportContract, ::testing::Values([] {
                           FakeSetup setup;
                           setup.devices = {"fake0", "fake1", "fake2"};
                           setup.options.chunk_bytes = 12 * 4096;
                           setup.options.slice_bytes = 10'001;
                           setup.options.work_requests = 5;
                           return std::make_unique<FakeRdmaHarness>(setup);
                         }));
INSTANTIATE_TEST_SUITE_P(RdmaBetweenGpus, TransportContract, ::testing::Values([] {
                           FakeSetup setup;
                           setup.devices = {"fake0", "fake1"};
                           setup.options.chunk_bytes = 12 * 4096;
                           setup.options.slice_bytes = 10'001;
                           setup.gpu_here = setup.gpu_there = true;
                           return std::make_unique<FakeRdmaHarness>(setup);
                         }));
INSTANTIATE_TEST_SUITE_P(RdmaFromHostToGpu, TransportContract, ::testing::Values([] {
                           FakeSetup setup;
                           setup.gpu_there = true;
                           return std::make_unique<FakeRdmaHarness>(setup);
                         }));
INSTANTIATE_TEST_SUITE_P(RdmaFromGpuToHost, TransportContract, ::testing::Values([] {
                           FakeSetup setup;
                           setup.gpu_here = true;
                           return std::make_unique<FakeRdmaHarness>(setup);
                         }));
INSTANTIATE_TEST_SUITE_P(RdmaInAnyOrder, TransportContract, ::testing::Values([] {
                           FakeSetup setup;
                           setup.devices = {"fake0", "fake1"};
                           setup.options.relaxed_ordering = true;
                           setup.scramble = 17;
                           return std::make_unique<FakeRdmaHarness>(setup);
                         }));

}  // namespace
}  // namespace gantry::transport
