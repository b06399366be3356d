// The transport contract over libibverbs.
#include <gtest/gtest.h>

#include "tests/rdma/real_rdma_place.h"
#include "tests/sidecar/transport/rdma/rdma_harness.h"

namespace gantry::transport {
namespace {

using gantry::testing::TransportContract;

// Devices give up what hangs after two seconds and not half a one: the tests look at it meanwhile.
std::unique_ptr<RdmaHarness> Make(RdmaOptions options) {
  options.timeout = 16;
  return std::make_unique<RdmaHarness>(std::make_unique<RealRdmaPlace>(options));
}

INSTANTIATE_TEST_SUITE_P(RealRdma, TransportContract, ::testing::Values([] { return Make({}); }));
INSTANTIATE_TEST_SUITE_P(RealRdmaSmallChunks, TransportContract, ::testing::Values([] {
                           RdmaOptions options;
                           options.chunk_bytes = 12 * 4096;
                           options.slice_bytes = 10'001;
                           options.work_requests = 5;
                           return Make(options);
                         }));
INSTANTIATE_TEST_SUITE_P(RealRdmaInline, TransportContract, ::testing::Values([] {
                           RdmaOptions options;
                           options.slice_bytes = 500;
                           options.inline_bytes = 500;
                           return Make(options);
                         }));

}  // namespace
}  // namespace gantry::transport
