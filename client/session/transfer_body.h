// The bodies of POST /v1/transfers and POST /v1/views, as CBOR. Thread-safe.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "client/include/gantry.h"

namespace gantry::client {

inline constexpr std::string_view kCborBodyType = "application/cbor";

// What the handles in a spec stand for.
struct TransferObjects {
  std::span<const std::string> local;  // references, in the order of spec.local
  std::string view;                    // its id; empty: none
  std::string fence;                   // reference of the counter's buffer; empty: none
};
std::string TransferBody(std::string_view workload, std::string_view id,
                         const gantry_transfer_spec& spec, const TransferObjects& objects);
std::string ViewBody(std::string_view workload, std::string_view id, const gantry_view_spec& spec);

}  // namespace gantry::client
