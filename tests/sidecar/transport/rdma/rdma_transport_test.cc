#include "sidecar/transport/rdma/rdma_transport.h"

#include <gtest/gtest.h>

#include "tests/sidecar/transport/rdma/fake_rdma_place.h"
#include "tests/sidecar/transport/rdma/rdma_harness.h"

namespace gantry::transport {
namespace {

using gantry::testing::FakeDeviceOptions;

// Devices that write in any order, and acknowledge what is still on its way to memory: of a GPU or
// of the host.
class RdmaFlush : public ::testing::TestWithParam<bool> {};

TEST_P(RdmaFlush, WhatIsReportedWrittenIsThere) {
  constexpr uint64_t kBytes = 1 << 20;
  RdmaOptions options;
  options.relaxed_ordering = true;
  options.slice_bytes = 4096;
  FakeRdmaPlace place({{.name = "fake0", .dmabuf = true}, {.name = "fake1", .dmabuf = true}},
                      options);
  RdmaWorld& world = place.world();
  if (GetParam()) world.UseGpuThere();
  const gantry::testing::TestArena local(kBytes, 1), remote(kBytes, 2);
  const auto allocation = world.Local(local);
  const auto target = world.Remote(world.Describe(remote));
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    place.fabric().Scramble(seed);
    std::memset(remote.data(), 0, kBytes);
    const auto operation = world.transport_.Start(
        world.WithNics(PlanOf(wire::Operation::kWrite, allocation, target, 0, 0, kBytes)), 0, seed);
    ASSERT_TRUE(world.Finish(*operation));
    ASSERT_FALSE(operation->error()) << operation->error()->message;
    ASSERT_EQ(std::memcmp(local.data(), remote.data(), kBytes), 0) << "seed " << seed;
    ASSERT_EQ(place.fabric().late_writes(), 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(MemoryOf, RdmaFlush, ::testing::Values(false, true),
                         [](const auto& one) { return one.param ? "Gpu" : "Host"; });

// A device may answer more reads at a time than it asks.
TEST(RdmaReads, NoMoreAreAskedAtATimeThanTheDeviceHereTellsAndThePeersAnswers) {
  FakeDeviceOptions device{.name = "fake0"};
  device.limits.reads_max = 16;
  device.limits.reads_sent_max = 2;
  FakeRdmaPlace place({device}, {});
  RdmaWorld& world = place.world();
  world.MoveSomething();
  EXPECT_TRUE(world.errors_.empty());
  QueuePairOptions options;
  options.reads_sent = 2;
  QueuePairAddress to;
  to.reads_max = 16;
  EXPECT_EQ(ReadsSent(options, to), 2u);
  to.reads_max = 1;
  EXPECT_EQ(ReadsSent(options, to), 1u);
}

using gantry::testing::TransportContract;

struct Setup {
  std::vector<std::string> devices = {"fake0"};
  RdmaOptions options;
  uint64_t scramble = 0;  // a seed; 0: everything in its order
  bool gpu_here = false;
  bool gpu_there = false;
};

std::unique_ptr<RdmaHarness> Make(const Setup& setup) {
  std::vector<FakeDeviceOptions> devices;
  for (const std::string& name : setup.devices) {
    devices.push_back({.name = name, .dmabuf = setup.gpu_here || setup.gpu_there});
  }
  auto place = std::make_unique<FakeRdmaPlace>(devices, setup.options);
  if (setup.scramble != 0) place->fabric().Scramble(setup.scramble);
  if (setup.gpu_here) place->world().UseGpuHere();
  if (setup.gpu_there) place->world().UseGpuThere();
  return std::make_unique<RdmaHarness>(std::move(place));
}

INSTANTIATE_TEST_SUITE_P(Rdma, TransportContract, ::testing::Values([] { return Make({}); }));
INSTANTIATE_TEST_SUITE_P(RdmaSmallChunksManyDevices, TransportContract, ::testing::Values([] {
                           Setup setup;
                           setup.devices = {"fake0", "fake1", "fake2"};
                           setup.options.chunk_bytes = 12 * 4096;
                           setup.options.slice_bytes = 10'001;
                           setup.options.work_requests = 5;
                           return Make(setup);
                         }));
INSTANTIATE_TEST_SUITE_P(RdmaBetweenGpus, TransportContract, ::testing::Values([] {
                           Setup setup;
                           setup.devices = {"fake0", "fake1"};
                           setup.options.chunk_bytes = 12 * 4096;
                           setup.options.slice_bytes = 10'001;
                           setup.gpu_here = setup.gpu_there = true;
                           return Make(setup);
                         }));
INSTANTIATE_TEST_SUITE_P(RdmaFromHostToGpu, TransportContract, ::testing::Values([] {
                           Setup setup;
                           setup.gpu_there = true;
                           return Make(setup);
                         }));
INSTANTIATE_TEST_SUITE_P(RdmaFromGpuToHost, TransportContract, ::testing::Values([] {
                           Setup setup;
                           setup.gpu_here = true;
                           return Make(setup);
                         }));
INSTANTIATE_TEST_SUITE_P(RdmaInline, TransportContract, ::testing::Values([] {
                           Setup setup;
                           setup.options.slice_bytes = 500;
                           setup.options.inline_bytes = 500;
                           return Make(setup);
                         }));
INSTANTIATE_TEST_SUITE_P(RdmaInAnyOrder, TransportContract, ::testing::Values([] {
                           Setup setup;
                           setup.devices = {"fake0", "fake1"};
                           setup.options.relaxed_ordering = true;
                           setup.scramble = 17;
                           return Make(setup);
                         }));
INSTANTIATE_TEST_SUITE_P(RdmaToGpuInAnyOrder, TransportContract, ::testing::Values([] {
                           Setup setup;
                           setup.devices = {"fake0", "fake1"};
                           setup.options.relaxed_ordering = true;
                           setup.scramble = 17;
                           setup.gpu_there = true;
                           return Make(setup);
                         }));

}  // namespace
}  // namespace gantry::transport
