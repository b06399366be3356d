// What shows that a transfer's id is used again for another request. Stateless; thread-safe.
#pragma once

#include <cstdint>

#include "lib/wire/transfer_request.h"

namespace gantry::engine {

// Equal for requests of equal content, whatever their ids.
uint64_t FingerprintOf(const wire::TransferRequest& request);

}  // namespace gantry::engine
