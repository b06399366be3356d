// What every Verbs does, done by libibverbs on the first RDMA device that there is.
#include "sidecar/transport/rdma/verbs/system_verbs.h"
#include "tests/contracts/verbs_contract.h"
#include "tests/rdma/verbs_endpoint.h"

namespace gantry::testing {
namespace {

class SystemVerbsPlace final : public VerbsPlace {
 public:
  transport::Verbs& here() override { return *verbs_; }
  transport::Verbs& there() override { return *verbs_; }
  bool RefusesDmabufs() const override { return InGuest(); }  // soft-RoCE

 private:
  const std::unique_ptr<transport::Verbs> verbs_ = transport::MakeSystemVerbs();
};

INSTANTIATE_TEST_SUITE_P(System, VerbsContract,
                         ::testing::Values([] { return std::make_unique<SystemVerbsPlace>(); }));

}  // namespace
}  // namespace gantry::testing
