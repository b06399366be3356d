// The checks of a registration that need no descriptor. Stateless; thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lib/base/result.h"
#include "lib/wire/registration_request.h"
#include "sidecar/memory/piece_map.h"
#include "sidecar/registry/buffer_registry.h"

namespace gantry::registry {

// One buffer of a request. Its pieces index only the allocations that it uses.
struct CheckedBuffer {
  memory::PieceMap pieces;
  std::vector<uint32_t> allocations;  // their indices in the request
};

// Checks names, sizes, ranges, layouts and limits, without wrapping. The result is parallel to
// request.buffers. An error names its field as a JSON pointer into the request.
Result<std::vector<CheckedBuffer>> CheckRegistration(const wire::RegistrationRequest& request,
                                                     const RegistryLimits& limits);

// Returns "/<list>/<index>", the prefix of a pointer within that element.
std::string ElementPointer(std::string_view list, size_t index);
// Returns the error with `pointer` in front of its field.
Error Below(std::string_view pointer, Error error);

}  // namespace gantry::registry
