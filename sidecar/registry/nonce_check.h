// The check behind `verify` of a registration: its owner has put bytes into the buffers, and every
// copy worker has to find them where its own mapping says that the buffers are. Thread-safe.
#pragma once

#include "lib/base/result.h"
#include "lib/wire/registration_request.h"
#include "sidecar/memory/memory_mapper.h"
#include "sidecar/registry/resolved_request.h"

namespace gantry::registry {

// kVerificationFailed names the buffer, the offset in it, and which worker found what there. Looks
// also at buffers that exist already. Nothing is asked where no buffer has nonces.
Status CheckNonces(const wire::RegistrationRequest& request, const ResolvedRequest& resolved,
                   memory::MemoryMapper& mapper);

}  // namespace gantry::registry
