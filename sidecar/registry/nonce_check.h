// Verifies a registration. Its owner has written bytes into the buffers; every copy worker must
// read them through its own mapping. Thread-safe.
#pragma once

#include "lib/base/result.h"
#include "lib/wire/registration_request.h"
#include "sidecar/memory/memory_mapper.h"
#include "sidecar/registry/resolved_request.h"

namespace gantry::registry {

// kVerificationFailed names the buffer, the offset, the worker and the bytes found. Also checks
// buffers that exist already. Does nothing without nonces.
Status CheckNonces(const wire::RegistrationRequest& request, const ResolvedRequest& resolved,
                   memory::MemoryMapper& mapper);

}  // namespace gantry::registry
