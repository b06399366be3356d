// Two hosts with the same fake RDMA devices, and the world over them. Used by one thread at a time.
#pragma once

#include <vector>

#include "tests/fakes/fake_verbs.h"
#include "tests/sidecar/transport/rdma/rdma_place.h"

namespace gantry::transport {

class FakeRdmaPlace final : public RdmaPlace {
 public:
  FakeRdmaPlace(const std::vector<gantry::testing::FakeDeviceOptions>& devices,
                const RdmaOptions& options)
      : here_(fabric_, devices),
        there_(fabric_, devices),
        world_(here_, there_, options, options) {}

  RdmaWorld& world() override { return world_; }
  void Hang() override { fabric_.SetProgress(gantry::testing::FakeFabric::Progress::kByStep); }
  gantry::testing::FakeFabric& fabric() { return fabric_; }
  gantry::testing::FakeVerbs& here() { return here_; }

 private:
  gantry::testing::FakeFabric fabric_;
  gantry::testing::FakeVerbs here_;
  gantry::testing::FakeVerbs there_;
  RdmaWorld world_;
};

}  // namespace gantry::transport
