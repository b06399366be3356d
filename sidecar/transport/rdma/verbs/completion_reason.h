// Explains a failed work completion: an error with its code, its reason and a remedy. Stateless;
// thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "lib/base/error.h"
#include "sidecar/transport/rdma/verbs/verbs.h"

namespace gantry::transport {

// The name in libibverbs: "remote access error".
std::string_view NameOf(WorkStatus status);
// The error of a work request that `device` exchanged with `peer`. A flushed one follows another's
// error and has no reason of its own.
Error ErrorOf(const WorkCompletion& completion, std::string_view device, std::string_view peer);
// True when a new queue pair may succeed with the same work.
bool MayBeTriedAgain(WorkStatus status);

}  // namespace gantry::transport
