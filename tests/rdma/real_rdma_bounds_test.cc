// Seams and bounds over libibverbs.
#include <gtest/gtest.h>

#include "tests/rdma/real_rdma_place.h"
#include "tests/sidecar/transport/rdma/rdma_bounds_contract.h"

namespace gantry::transport {
namespace {

// Registering touches every page, which takes its time where the processor is emulated.
const RdmaBoundsSetup kSetup = {
    16 << 20, [](const RdmaOptions& options) { return std::make_unique<RealRdmaPlace>(options); }};

INSTANTIATE_TEST_SUITE_P(Real, RdmaSeams, ::testing::Values(kSetup));
INSTANTIATE_TEST_SUITE_P(Real, RdmaForgeries, ::testing::Values(kSetup));

}  // namespace
}  // namespace gantry::transport
