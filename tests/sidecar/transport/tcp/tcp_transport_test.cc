#include "sidecar/transport/tcp/tcp_transport.h"

#include <gtest/gtest.h>

#include <future>

#include "tests/contracts/transport_contract.h"
#include "tests/sidecar/transport/tcp/tcp_fixture.h"

namespace gantry::transport {
namespace {

class TcpHarness final : public gantry::testing::TransportHarness {
 public:
  explicit TcpHarness(TcpWorldOptions options = {}) : world_(options) {}
  ~TcpHarness() override { released_.set_value(); }

  Transport& transport() override { return *world_.transport_; }
  std::shared_ptr<const memory::MappedAllocation> Local(const TestArena& arena) override {
    return world_.Local(arena);
  }
  RemoteAllocation Remote(const TestArena& arena) override { return world_.Remote(arena); }
  void Wait() override { world_.Wait(); }
  void KillCarrier() override {
    EXPECT_TRUE(world_.server_->EndSession("session", Clock::now() + std::chrono::seconds(5)));
  }
  // The target's threads stand still, as when its process is stopped.
  void HangCarrier() override {
    OpenStreams();
    for (size_t i = 0; i < world_.server_loops_->size(); ++i) {
      std::promise<void> reached;
      world_.server_loops_->at(i).Post([this, &reached] {
        reached.set_value();
        hold_.wait();
      });
      reached.get_future().wait();
    }
  }

 private:
  // Without a stream nothing would be issued that could hang.
  void OpenStreams() {
    const TestArena arena(4096);
    auto operation =
        world_.transport_->Start(TcpWorld::PlanOf(wire::Operation::kRead, Local(arena),
                                                  world_.Remote(arena, "first"), 0, 0, 1),
                                 0, 1);
    EXPECT_TRUE(world_.Finish(*operation));
  }

  std::promise<void> released_;
  std::shared_future<void> hold_ = released_.get_future().share();
  TcpWorld world_;
};

using gantry::testing::TransportContract;
INSTANTIATE_TEST_SUITE_P(Tcp, TransportContract,
                         ::testing::Values([] { return std::make_unique<TcpHarness>(); }));
INSTANTIATE_TEST_SUITE_P(TcpWithoutChecksum, TransportContract, ::testing::Values([] {
                           TcpWorldOptions options;
                           options.tcp.checksum = false;
                           return std::make_unique<TcpHarness>(options);
                         }));
INSTANTIATE_TEST_SUITE_P(TcpOneStreamSmallParts, TransportContract, ::testing::Values([] {
                           TcpWorldOptions options;
                           options.tcp.streams_per_peer = 1;
                           options.tcp.part_bytes_max = options.tcp.part_bytes_min = 10'001;
                           return std::make_unique<TcpHarness>(options);
                         }));

}  // namespace
}  // namespace gantry::transport
