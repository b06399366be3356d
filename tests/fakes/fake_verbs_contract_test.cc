// The fake RDMA devices keep what libibverbs does: between two hosts, on one device, and when they
// choose their order at random.
#include "tests/contracts/verbs_contract.h"
#include "tests/fakes/fake_verbs.h"

namespace gantry::testing {
namespace {

class FakeVerbsPlace final : public VerbsPlace {
 public:
  // `scramble`: a seed; 0: everything in its order.
  FakeVerbsPlace(bool one_device, uint64_t scramble) : one_device_(one_device) {
    if (scramble != 0) fabric_.Scramble(scramble);
  }

  transport::Verbs& here() override { return here_; }
  transport::Verbs& there() override { return one_device_ ? here_ : there_; }
  bool RefusesDmabufs() const override { return true; }

 private:
  const bool one_device_;
  FakeFabric fabric_;
  FakeVerbs here_{fabric_, {{.name = "a0"}, {.name = "a1"}}};
  FakeVerbs there_{fabric_, {{.name = "b0"}}};
};

INSTANTIATE_TEST_SUITE_P(Fake, VerbsContract, ::testing::Values([] {
                           return std::make_unique<FakeVerbsPlace>(false, 0);
                         }));
INSTANTIATE_TEST_SUITE_P(FakeOnOneDevice, VerbsContract, ::testing::Values([] {
                           return std::make_unique<FakeVerbsPlace>(true, 0);
                         }));
INSTANTIATE_TEST_SUITE_P(FakeInAnyOrder, VerbsContract, ::testing::Values([] {
                           return std::make_unique<FakeVerbsPlace>(false, 17);
                         }));

}  // namespace
}  // namespace gantry::testing
