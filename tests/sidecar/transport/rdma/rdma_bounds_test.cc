#include <gtest/gtest.h>

#include "tests/sidecar/transport/rdma/fake_rdma_place.h"
#include "tests/sidecar/transport/rdma/rdma_bounds_contract.h"

namespace gantry::transport {
namespace {

std::unique_ptr<RdmaPlace> MakeFakePlace(const RdmaOptions& options, uint64_t region_bytes_max) {
  gantry::testing::FakeDeviceOptions device{.name = "fake0"};
  device.port.message_bytes_max = 1U << 30;
  return std::make_unique<FakeRdmaPlace>(std::vector{device}, options, region_bytes_max);
}

const RdmaBoundsSetup kSetup = {MakeFakePlace};

INSTANTIATE_TEST_SUITE_P(Fake, RdmaSeams, ::testing::Values(kSetup));
INSTANTIATE_TEST_SUITE_P(Fake, RdmaForgeries, ::testing::Values(kSetup));

}  // namespace
}  // namespace gantry::transport
