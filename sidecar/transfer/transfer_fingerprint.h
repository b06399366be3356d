// Detects that a transfer's id is reused for another request. Stateless; thread-safe.
#pragma once

#include <cstdint>

#include "lib/wire/transfer_request.h"

namespace gantry::engine {

// Equal for requests with equal content; ids do not count.
uint64_t FingerprintOf(const wire::TransferRequest& request);

}  // namespace gantry::engine
