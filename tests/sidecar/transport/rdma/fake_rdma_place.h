// Two hosts with the same fake RDMA devices, and the world over them. Used by one thread at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/fakes/fake_verbs.h"
#include "tests/sidecar/transport/rdma/rdma_place.h"
#include "tests/sidecar/transport/rdma/short_verbs.h"

namespace gantry::transport {

class FakeRdmaPlace final : public RdmaPlace {
 public:
  // `region_bytes_max`: see ShortVerbs.
  FakeRdmaPlace(const std::vector<gantry::testing::FakeDeviceOptions>& devices,
                const RdmaOptions& options, uint64_t region_bytes_max = UINT64_MAX)
      : here_(fabric_, devices),
        there_(fabric_, devices),
        short_here_(here_, region_bytes_max),
        short_there_(there_, region_bytes_max),
        world_(short_here_, short_there_, options, options) {}

  RdmaWorld& world() override { return world_; }
  void Hang() override { fabric_.SetProgress(gantry::testing::FakeFabric::Progress::kByStep); }
  gantry::testing::FakeFabric& fabric() { return fabric_; }
  gantry::testing::FakeVerbs& here() { return here_; }

 private:
  gantry::testing::FakeFabric fabric_;
  gantry::testing::FakeVerbs here_;
  gantry::testing::FakeVerbs there_;
  ShortVerbs short_here_;
  ShortVerbs short_there_;
  RdmaWorld world_;
};

}  // namespace gantry::transport
