#include "sidecar/transport/tcp/tcp_transport.h"

#include <gtest/gtest.h>

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
  void HangCarrier() override {
    world_.OpenStreams();
    world_.HoldServer(released_.get_future().share());
  }

 private:
  std::promise<void> released_;
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
