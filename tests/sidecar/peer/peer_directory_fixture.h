// An owner and an initiator that knows it, over real sockets, for the tests of the peer directory.
// Used by one thread unless a test says otherwise.
#pragma once

#include <gtest/gtest.h>

#include <future>
#include <memory>

#include "tests/sidecar/peer/test_sidecar.h"

namespace gantry::testing {

class PeerDirectoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    owner_ = std::make_unique<TestSidecar>(node_, "prefill", owner_mapper_);
    owner_->StartServer();
    initiator_.ConnectTo(node_, "prefill");
  }
  void TearDown() override {
    EXPECT_TRUE(initiator_.directory().Remove("prefill", In(5'000)));
    EXPECT_EQ(mapper_.live(), 0u);
  }
  // The owner's process is replaced by another one of the same name.
  void RestartOwner() {
    owner_->StopServer();
    owner_.reset();
    owner_ = std::make_unique<TestSidecar>(node_, "prefill", owner_mapper_);
    owner_->StartServer();
  }
  static bool Waits(const std::future<Status>& future, int time_ms) {
    return future.wait_for(milliseconds(time_ms)) == std::future_status::timeout;
  }
  std::future<Status> RemoveAsync(const registry::Buffer& buffer, int time_ms) {
    return std::async(std::launch::async, [this, id = buffer.description().id, time_ms] {
      return owner_->registry().Remove(id, In(time_ms));
    });
  }

  NodeDir node_;
  CountingMapper owner_mapper_, mapper_;
  TestArena arena_{1 << 20};
  std::unique_ptr<TestSidecar> owner_;
  TestSidecar initiator_{node_, "decode", mapper_};
};

}  // namespace gantry::testing
