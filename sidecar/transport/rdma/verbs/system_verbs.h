// RDMA devices through libibverbs; no other code uses it. Thread-safe.
#pragma once

#include <memory>

#include "sidecar/transport/rdma/verbs/verbs.h"

namespace gantry::transport {

std::unique_ptr<Verbs> MakeSystemVerbs();

}  // namespace gantry::transport
