// Seams and bounds over libibverbs, on whatever RDMA devices there are.
#include <gtest/gtest.h>

#include "sidecar/transport/rdma/system_verbs.h"
#include "tests/sidecar/transport/rdma/rdma_bounds_contract.h"

namespace gantry::transport {
namespace {

class RealPlace final : public RdmaPlace {
 public:
  explicit RealPlace(const RdmaOptions& options)
      : verbs_(MakeSystemVerbs()), world_(*verbs_, *verbs_, options, options) {}
  RdmaWorld& world() override { return world_; }

 private:
  const std::unique_ptr<Verbs> verbs_;
  RdmaWorld world_;
};

// Registering touches every page, which takes its time where the processor is emulated.
const RdmaBoundsSetup kSetup = {
    16 << 20, [](const RdmaOptions& options) { return std::make_unique<RealPlace>(options); }};

INSTANTIATE_TEST_SUITE_P(Real, RdmaSeams, ::testing::Values(kSetup));
INSTANTIATE_TEST_SUITE_P(Real, RdmaForgeries, ::testing::Values(kSetup));

}  // namespace
}  // namespace gantry::transport
