#include <gtest/gtest.h>

#include "tests/fakes/fake_verbs.h"
#include "tests/sidecar/transport/rdma/rdma_bounds_contract.h"

namespace gantry::transport {
namespace {

constexpr uint64_t kChunk = 64 << 20;

// Devices that take no larger memory regions.
class FakePlace final : public RdmaPlace {
 public:
  explicit FakePlace(const RdmaOptions& options) : world_(here_, there_, options, options) {}
  RdmaWorld& world() override { return world_; }

 private:
  static gantry::testing::FakeDeviceOptions Device() {
    gantry::testing::FakeDeviceOptions device{.name = "fake0"};
    device.limits.region_bytes_max = kChunk;
    device.port.message_bytes_max = 1U << 30;
    return device;
  }

  gantry::testing::FakeFabric fabric_;
  gantry::testing::FakeVerbs here_{fabric_, {Device()}};
  gantry::testing::FakeVerbs there_{fabric_, {Device()}};
  RdmaWorld world_;
};

const RdmaBoundsSetup kSetup = {
    kChunk, [](const RdmaOptions& options) { return std::make_unique<FakePlace>(options); }};

INSTANTIATE_TEST_SUITE_P(Fake, RdmaSeams, ::testing::Values(kSetup));
INSTANTIATE_TEST_SUITE_P(Fake, RdmaForgeries, ::testing::Values(kSetup));

}  // namespace
}  // namespace gantry::transport
