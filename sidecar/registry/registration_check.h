// Everything that can be said about a registration before any descriptor is looked at.
// Stateless; thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lib/base/result.h"
#include "lib/wire/registration_request.h"
#include "sidecar/memory/piece_map.h"
#include "sidecar/registry/buffer_registry.h"

namespace gantry::registry {

// One buffer of a request: its pieces count only the allocations that it uses itself.
struct CheckedBuffer {
  memory::PieceMap pieces;
  std::vector<uint32_t> allocations;  // their indices in the request
};

// Names, sizes, ranges, layouts and limits, without wrapping. The result is parallel to
// request.buffers; an error names its field as a JSON pointer into the request.
Result<std::vector<CheckedBuffer>> CheckRegistration(const wire::RegistrationRequest& request,
                                                     const RegistryLimits& limits);

// "/<list>/<index>", to be followed by a pointer within that element.
std::string ElementPointer(std::string_view list, size_t index);
// The same error, its field moved under `pointer`.
Error Below(std::string_view pointer, Error error);

}  // namespace gantry::registry
