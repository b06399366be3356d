// RDMA devices through libibverbs; the one file pair that knows it. Thread-safe.
#pragma once

#include <memory>

#include "sidecar/transport/rdma/verbs/verbs.h"

namespace gantry::transport {

std::unique_ptr<Verbs> MakeSystemVerbs();

}  // namespace gantry::transport
