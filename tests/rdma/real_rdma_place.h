// The world over libibverbs, on whatever RDMA devices there are. Used by one thread at a time.
#pragma once

#include <cstdint>
#include <memory>

#include "sidecar/transport/rdma/verbs/system_verbs.h"
#include "tests/sidecar/transport/rdma/rdma_place.h"
#include "tests/sidecar/transport/rdma/short_verbs.h"

namespace gantry::transport {

class RealRdmaPlace final : public RdmaPlace {
 public:
  // `region_bytes_max`: see ShortVerbs.
  explicit RealRdmaPlace(const RdmaOptions& options, uint64_t region_bytes_max = UINT64_MAX)
      : verbs_(MakeSystemVerbs()),
        short_(*verbs_, region_bytes_max),
        world_(short_, short_, options, options) {}

  RdmaWorld& world() override { return world_; }
  // The other end is gone, and this one asks again and again: for half a second.
  void Hang() override {
    world_.MoveSomething();
    world_.target_.End("session");
  }

 private:
  const std::unique_ptr<Verbs> verbs_;
  ShortVerbs short_;
  RdmaWorld world_;
};

}  // namespace gantry::transport
