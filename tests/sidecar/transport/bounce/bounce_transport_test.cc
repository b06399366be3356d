#include "sidecar/transport/bounce/bounce_transport.h"

#include <gtest/gtest.h>

#include "tests/contracts/transport_contract.h"
#include "tests/sidecar/transport/bounce/bounce_world.h"

namespace gantry::transport {
namespace {

using gantry::testing::TestArena;
using gantry::testing::TransportContract;

class Polled final : public Transport {
 public:
  explicit Polled(BounceWorld& world) : world_(world) {}
  TransportTraits traits() const override { return world_.bounce_->traits(); }
  Status Probe() override { return world_.bounce_->Probe(); }
  Status CanCarry(const LocalSide& local,
                  const std::vector<RemoteAllocation>& remote) const override {
    return world_.bounce_->CanCarry(local, remote);
  }
  Status CanReach(const memory::MappedAllocation& local,
                  const RemoteAllocation& remote) const override {
    return world_.bounce_->CanReach(local, remote);
  }
  std::unique_ptr<Operation> Start(std::shared_ptr<const MovePlan> plan, int priority,
                                   uint64_t token) override {
    return world_.bounce_->Start(std::move(plan), priority, token);
  }
  PollOutcome Poll(std::vector<uint64_t>* ready_tokens) override {
    return world_.Poll(ready_tokens);
  }

 private:
  BounceWorld& world_;
};

struct Setup {
  bool gpu_here = true;
  bool gpu_there = true;
  std::vector<std::string> devices = {"fake0"};
  bool relaxed_ordering = false;
  uint64_t scramble = 0;
  uint32_t lent_max = UINT32_MAX;  // slices
};

class BounceHarness final : public gantry::testing::TransportHarness {
 public:
  explicit BounceHarness(const Setup& setup)
      : setup_(setup), world_(OptionsOf(setup), DevicesOf(setup)), polled_(world_) {
    if (setup.scramble != 0) world_.fabric().Scramble(setup.scramble);
    world_.exchange_->slices_max = setup.lent_max;
  }
  ~BounceHarness() override {
    EXPECT_EQ(world_.slices_in_use(), 0u);
    world_.target_.End("session");
    EXPECT_EQ(world_.half_there_.slices.in_use(), 0u);
  }

  Transport& transport() override { return polled_; }
  std::shared_ptr<const memory::MappedAllocation> Local(const TestArena& arena) override {
    return setup_.gpu_here ? world_.OnGpuHere(arena) : world_.world().Local(arena);
  }
  RemoteAllocation Remote(const TestArena& arena) override {
    return setup_.gpu_there ? world_.OnGpuThere(arena) : world_.OnNicsThere(arena);
  }
  std::vector<std::shared_ptr<const memory::NicMemory>> LocalNicMemory() const override {
    return setup_.gpu_here ? std::vector<std::shared_ptr<const memory::NicMemory>>()
                           : const_cast<BounceWorld&>(world_).world().kept_;
  }
  void Wait() override { world_.world().waker_.Wait(); }
  void KillCarrier() override { world_.world().target_.End("session"); }
  void HangCarrier() override {
    world_.place_.Hang();
    world_.copier_here_.Hold(true);
    world_.copier_there_.Hold(true);
  }

 private:
  static RdmaOptions OptionsOf(const Setup& setup) {
    RdmaOptions options;
    options.relaxed_ordering = setup.relaxed_ordering;
    return options;
  }
  static std::vector<gantry::testing::FakeDeviceOptions> DevicesOf(const Setup& setup) {
    std::vector<gantry::testing::FakeDeviceOptions> devices;
    for (const std::string& name : setup.devices) devices.push_back({.name = name});
    return devices;
  }
  const Setup setup_;
  BounceWorld world_;
  Polled polled_;
};

auto Make(const Setup& setup) {
  return ::testing::Values([setup] { return std::make_unique<BounceHarness>(setup); });
}
INSTANTIATE_TEST_SUITE_P(BounceBetweenGpus, TransportContract, Make({}));
INSTANTIATE_TEST_SUITE_P(BounceFromGpuToNic, TransportContract,
                         Make({.gpu_there = false, .devices = {"fake0", "fake1"}}));
INSTANTIATE_TEST_SUITE_P(BounceFromNicToGpu, TransportContract, Make({.gpu_here = false}));
INSTANTIATE_TEST_SUITE_P(BounceThroughLittle, TransportContract, Make({.lent_max = 1}));
INSTANTIATE_TEST_SUITE_P(
    BounceInAnyOrder, TransportContract,
    Make({.devices = {"fake0", "fake1"}, .relaxed_ordering = true, .scramble = 17}));

}  // namespace
}  // namespace gantry::transport
