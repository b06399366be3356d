// A transport that goes through RDMA devices gets what they have of the transfer's own local
// buffers, and is not taken where they have nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "sidecar/transfer/unstarted_operation.h"
#include "tests/fakes/engine_fixture.h"
#include "tests/fakes/willing_transport.h"

namespace gantry::engine {
namespace {

using ::gantry::testing::EngineFixture;
using ::gantry::testing::In;
using ::gantry::testing::TestArena;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint64_t kBytesOnNics = 64 << 10;

struct Registered final : memory::NicMemory {
  size_t chunks() const override { return 1; }
  Status Deregister() const override { return {}; }
};

// Takes all but what is registered with `refuses`.
class FakeRegistrar final : public memory::NicRegistrar {
 public:
  memory::NicRegistration Register(const std::vector<memory::NicPiece>&,
                                   const wire::Access&) override {
    if (refuses) return Fail(ErrorCode::kPathUnavailable, "no device reaches it");
    auto registered = std::make_shared<Registered>();
    last = registered;
    return registered;
  }
  bool refuses = false;
  std::shared_ptr<const memory::NicMemory> last;
};

class OverNics final : public testing::WillingTransport {
 public:
  OverNics() : WillingTransport({.path = wire::Path::kShm}) {}
  Status CanCarry(const transport::LocalSide& local,
                  const std::vector<transport::RemoteAllocation>&) const override {
    if (local.why_not_on_nics) return Fail(*local.why_not_on_nics);
    for (const auto& nic_memory : local.nic_memory) {
      if (nic_memory.get() != down) continue;
      return Fail(ErrorCode::kPathUnavailable, "the ports of its devices");
    }
    return {};
  }
  std::unique_ptr<transport::Operation> Start(std::shared_ptr<const transport::MovePlan> plan, int,
                                              uint64_t token) override {
    last_plan = plan;
    token_ = token;
    auto operation = std::make_unique<UnstartedOperation>(std::move(plan));
    operation->Stop();
    return operation;
  }
  transport::PollOutcome Poll(std::vector<uint64_t>* ready_tokens) override {
    ready_tokens->push_back(token_);
    return {.poll_interval = milliseconds(1)};
  }

  std::shared_ptr<const transport::MovePlan> last_plan;
  const memory::NicMemory* down = nullptr;

 private:
  uint64_t token_ = 0;
};

class NicPlanTest : public EngineFixture {
 protected:
  void SetUp() override {
    auto transport = std::make_unique<OverNics>();
    transport_ = transport.get();
    std::vector<std::unique_ptr<transport::Transport>> transports;
    transports.push_back(std::move(transport));
    engine_ = std::make_unique<TransferEngine>(engine_options_, pool_, copies_.hints(),
                                               std::move(transports), registry_, events_, metrics_);
    registry_.SetNicRegistrar(&nics_);
    for (const char* name : {"w", "other"}) AddWorkload(name);
    // Two buffers over the same bytes, and one that devices do not have.
    mine_ = Add("w", "mine");
    others_ = Add("w", "others");
    nics_.refuses = true;
    Add("w", "nowhere");
    Add("other", "target");
  }
  void TearDown() override { engine_.reset(); }

  std::shared_ptr<const memory::NicMemory> Add(const std::string& workload,
                                               const std::string& name) {
    const TestArena& arena = workload == "w" ? here_ : there_;
    const auto registered = Register(workload, {&arena}, {{name, {{0, 0, kBytesOnNics}}, {}}});
    EXPECT_TRUE(registered);
    return nics_.last;
  }
  Result<TransferStatus> Submit(const std::string& local) {
    auto request = WithRange(Between("w", local, "other", "target"), 0, 0, kBytesOnNics);
    request.operation = wire::Operation::kWrite;
    return engine_->Submit(request, In(milliseconds(3'000)));
  }

  const TestArena here_{kBytesOnNics};
  const TestArena there_{kBytesOnNics};
  FakeRegistrar nics_;
  OverNics* transport_ = nullptr;
  std::shared_ptr<const memory::NicMemory> mine_;
  std::shared_ptr<const memory::NicMemory> others_;
};

TEST_F(NicPlanTest, APlanHasWhatDevicesHaveOfItsOwnBufferAlone) {
  ASSERT_NE(mine_, others_);
  ASSERT_TRUE(Submit("mine"));
  ASSERT_NE(transport_->last_plan, nullptr);
  EXPECT_THAT(transport_->last_plan->local_nic_memory, ElementsAre(mine_));
  ASSERT_TRUE(Submit("others"));
  EXPECT_THAT(transport_->last_plan->local_nic_memory, ElementsAre(others_));
}

TEST_F(NicPlanTest, ABufferThatNoDeviceHasIsAReasonAgainstThePath) {
  const auto refused = Submit("nowhere");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kPathUnavailable);
  EXPECT_THAT(refused.error().message, HasSubstr("no device reaches it"));
  EXPECT_EQ(transport_->last_plan, nullptr);
}

TEST_F(NicPlanTest, ABufferWhoseDevicesAreDownIsAReasonAndOthersAreNone) {
  transport_->down = mine_.get();
  const auto refused = Submit("mine");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kPathUnavailable);
  EXPECT_THAT(refused.error().message, HasSubstr("the ports of its devices"));
  EXPECT_EQ(transport_->last_plan, nullptr);
  EXPECT_TRUE(Submit("others"));
}

}  // namespace
}  // namespace gantry::engine
