// The world over libibverbs, on whatever RDMA devices there are. Used by one thread at a time.
#pragma once

#include <memory>

#include "sidecar/transport/rdma/system_verbs.h"
#include "tests/sidecar/transport/rdma/rdma_place.h"

namespace gantry::transport {

class RealRdmaPlace final : public RdmaPlace {
 public:
  explicit RealRdmaPlace(const RdmaOptions& options)
      : verbs_(MakeSystemVerbs()), world_(*verbs_, *verbs_, options, options) {}

  RdmaWorld& world() override { return world_; }
  // The other end is gone, and this one asks again and again: for half a second.
  void Hang() override {
    world_.MoveSomething();
    world_.target_.End("session");
  }

 private:
  const std::unique_ptr<Verbs> verbs_;
  RdmaWorld world_;
};

}  // namespace gantry::transport
