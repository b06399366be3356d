// The rdma transport of an RdmaPlace for the transport contract. Used by one thread at a time.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "tests/contracts/transport_contract.h"
#include "tests/sidecar/transport/rdma/rdma_place.h"

namespace gantry::transport {

class RdmaHarness final : public gantry::testing::TransportHarness {
 public:
  explicit RdmaHarness(std::unique_ptr<RdmaPlace> place) : place_(std::move(place)) {}

  Transport& transport() override { return place_->world().transport_; }
  std::shared_ptr<const memory::MappedAllocation> Local(
      const gantry::testing::TestArena& arena) override {
    return place_->world().Local(arena);
  }
  RemoteAllocation Remote(const gantry::testing::TestArena& arena) override {
    return place_->world().Remote(place_->world().Describe(arena));
  }
  std::vector<std::shared_ptr<const memory::NicMemory>> LocalNicMemory() const override {
    return place_->world().kept_;
  }
  bool ChunksAreSegments() const override { return false; }
  void Wait() override { place_->world().waker_.Wait(); }
  void KillCarrier() override { place_->world().target_.End("session"); }
  void HangCarrier() override { place_->Hang(); }

 private:
  const std::unique_ptr<RdmaPlace> place_;
};

}  // namespace gantry::transport
