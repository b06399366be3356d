// Two hosts with fake RDMA devices, and queue pairs between any two of them, each end with memory
// of its own. Used by one thread at a time.
#pragma once

#include <gtest/gtest.h>

#include "tests/contracts/verbs_ends.h"
#include "tests/fakes/fake_verbs.h"

namespace gantry::testing {

class FakeVerbsFixture : public VerbsEnds {
 protected:
  static transport::QueuePairOptions Options() {
    transport::QueuePairOptions options;
    options.gid_index = 1;
    options.work_requests = kRoom;
    options.remote_read = options.remote_write = true;
    return options;
  }

  FakeFabric fabric_;
  FakeVerbs one_{fabric_, {{.name = "a0"}, {.name = "a1"}}};
  FakeVerbs two_{fabric_, {{.name = "b0"}}};
};

}  // namespace gantry::testing
