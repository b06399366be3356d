// The body of POST /v1/transfers, as CBOR. Thread-safe.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "client/include/gantry.h"

namespace gantry::client {

inline constexpr std::string_view kTransferBodyType = "application/cbor";

// `local` are references of the caller's buffers, in the order of spec.local.
std::string TransferBody(std::string_view workload, std::string_view id,
                         const gantry_transfer_spec& spec, std::span<const std::string> local);

}  // namespace gantry::client
