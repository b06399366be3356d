// The tcp transport of a TcpWorld for the transport contract. Used by one thread at a time.
#pragma once

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <utility>

#include "tests/contracts/transport_contract.h"
#include "tests/sidecar/transport/tcp/tcp_fixture.h"

namespace gantry::transport {

class TcpHarness final : public gantry::testing::TransportHarness {
 public:
  explicit TcpHarness(std::shared_ptr<TcpWorld> world) : world_(std::move(world)) {}
  explicit TcpHarness(const TcpWorldOptions& options)
      : TcpHarness(std::make_shared<TcpWorld>(options)) {}
  ~TcpHarness() override { released_.set_value(); }

  Transport& transport() override { return *world_->transport_; }
  std::shared_ptr<const memory::MappedAllocation> Local(const TestArena& arena) override {
    return world_->Local(arena);
  }
  RemoteAllocation Remote(const TestArena& arena) override { return world_->Remote(arena); }
  void Wait() override { world_->waker_.Wait(); }
  void KillCarrier() override {
    EXPECT_TRUE(world_->server_->EndSession("session", Clock::now() + std::chrono::seconds(5)));
  }
  void HangCarrier() override {
    world_->OpenStreams();
    world_->HoldServer(released_.get_future().share());
  }

 private:
  std::promise<void> released_;
  const std::shared_ptr<TcpWorld> world_;
};

}  // namespace gantry::transport
