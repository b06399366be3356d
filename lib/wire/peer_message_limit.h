// What every number in a peer's message is checked with. Stateless; thread-safe.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "lib/base/result.h"

namespace gantry::wire {

inline Status LimitOfPeer(std::string_view field, size_t value, size_t max) {
  if (value <= max) return {};
  return Fail(ErrorCode::kMalformedBody,
              std::string(field) + " of a peer's message is " + std::to_string(value) +
                  ", the limit is " + std::to_string(max),
              {}, std::string(field));
}

}  // namespace gantry::wire
