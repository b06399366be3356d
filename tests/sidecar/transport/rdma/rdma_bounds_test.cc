#include <gtest/gtest.h>

#include "tests/sidecar/transport/rdma/fake_rdma_place.h"
#include "tests/sidecar/transport/rdma/rdma_bounds_contract.h"

namespace gantry::transport {
namespace {

constexpr uint64_t kChunk = 64 << 20;

// Devices that take no larger memory regions.
std::unique_ptr<RdmaPlace> Make(const RdmaOptions& options) {
  gantry::testing::FakeDeviceOptions device{.name = "fake0"};
  device.limits.region_bytes_max = kChunk;
  device.port.message_bytes_max = 1U << 30;
  return std::make_unique<FakeRdmaPlace>(std::vector{device}, options);
}

const RdmaBoundsSetup kSetup = {kChunk, Make};

INSTANTIATE_TEST_SUITE_P(Fake, RdmaSeams, ::testing::Values(kSetup));
INSTANTIATE_TEST_SUITE_P(Fake, RdmaForgeries, ::testing::Values(kSetup));

}  // namespace
}  // namespace gantry::transport
