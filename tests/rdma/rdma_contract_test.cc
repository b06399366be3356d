// The transport contract and the seams of chunks over libibverbs, on whatever RDMA devices there
// are.
#include <gtest/gtest.h>

#include "sidecar/transport/rdma/system_verbs.h"
#include "tests/contracts/transport_contract.h"
#include "tests/sidecar/transport/rdma/rdma_world.h"

namespace gantry::transport {
namespace {

class RealRdmaHarness final : public gantry::testing::TransportHarness {
 public:
  explicit RealRdmaHarness(const RdmaOptions& options = {})
      : verbs_(MakeSystemVerbs()), world_(*verbs_, *verbs_, options, options) {}

  Transport& transport() override { return world_.transport_; }
  std::shared_ptr<const memory::MappedAllocation> Local(
      const gantry::testing::TestArena& arena) override {
    return world_.Local(arena);
  }
  RemoteAllocation Remote(const gantry::testing::TestArena& arena) override {
    return world_.Remote(world_.Describe(arena));
  }
  std::vector<std::shared_ptr<const memory::NicMemory>> OnNics() const override {
    return world_.kept_;
  }
  bool ChunksAreSegments() const override { return false; }
  void Wait() override { world_.Wait(); }
  void KillCarrier() override { world_.target_.End("session"); }
  // The other end is gone, and this one asks again and again: for half a second.
  void HangCarrier() override {
    world_.MoveSomething();
    world_.target_.End("session");
  }

 private:
  const std::unique_ptr<Verbs> verbs_;
  RdmaWorld world_;
};

using gantry::testing::TransportContract;
INSTANTIATE_TEST_SUITE_P(RealRdma, TransportContract,
                         ::testing::Values([] { return std::make_unique<RealRdmaHarness>(); }));
INSTANTIATE_TEST_SUITE_P(RealRdmaSmallChunks, TransportContract, ::testing::Values([] {
                           RdmaOptions options;
                           options.chunk_bytes = 12 * 4096;
                           options.slice_bytes = 10'001;
                           options.work_requests = 5;
                           return std::make_unique<RealRdmaHarness>(options);
                         }));

}  // namespace
}  // namespace gantry::transport
