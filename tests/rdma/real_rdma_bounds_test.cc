// Seams and bounds over libibverbs.
#include <gtest/gtest.h>

#include "tests/rdma/real_rdma_place.h"
#include "tests/sidecar/transport/rdma/rdma_bounds_contract.h"

namespace gantry::transport {
namespace {

const RdmaBoundsSetup kSetup = {[](const RdmaOptions& options, uint64_t region_bytes_max) {
  return std::make_unique<RealRdmaPlace>(options, region_bytes_max);
}};

INSTANTIATE_TEST_SUITE_P(Real, RdmaSeams, ::testing::Values(kSetup));
INSTANTIATE_TEST_SUITE_P(Real, RdmaForgeries, ::testing::Values(kSetup));

}  // namespace
}  // namespace gantry::transport
