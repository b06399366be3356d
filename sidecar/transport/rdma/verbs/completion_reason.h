// What a failed work completion means to people: an error with its code, its reason and what to do.
// Stateless; thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "lib/base/error.h"
#include "sidecar/transport/rdma/verbs/verbs.h"

namespace gantry::transport {

// As libibverbs calls it: "remote access error".
std::string_view NameOf(WorkStatus status);
// Of a work request that `device` carried to or from `peer`. A flushed one is the consequence of
// another's error and has no reason of its own.
Error ErrorOf(const WorkCompletion& completion, std::string_view device, std::string_view peer);
// The same work may be done by a new queue pair.
bool MayBeTriedAgain(WorkStatus status);

}  // namespace gantry::transport
