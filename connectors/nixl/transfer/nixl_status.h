// Errors of Gantry as NIXL's statuses, by their cause. Stateless; thread-safe.
#pragma once

#include "connectors/nixl/abi/nixl_interface.h"
#include "lib/base/error.h"

namespace gantry::nixl {

NixlStatus StatusOf(ErrorCode code);
// Memory of this agent that is lost is no fault of the other one.
NixlStatus StatusOf(const Error& error);
// The error of registering memory, which is of this agent and its sidecar alone.
NixlStatus StatusOfOwn(const Error& error);

}  // namespace gantry::nixl
