// What the suites of the rdma transport run on: two Verbs, the fake ones or libibverbs, with the
// world over them. Used by one thread at a time.
#pragma once

#include "tests/sidecar/transport/rdma/rdma_world.h"

namespace gantry::transport {

class RdmaPlace {
 public:
  virtual ~RdmaPlace() = default;
  virtual RdmaWorld& world() = 0;
  // What is posted from now on, or in flight, does not come to an end by itself soon.
  virtual void Hang() = 0;
};

}  // namespace gantry::transport
