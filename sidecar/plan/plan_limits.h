// Size limits of plans, and the field names of requests. Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "lib/base/result.h"
#include "sidecar/plan/row_limits.h"

namespace gantry::engine {

struct PlanLimits {
  uint64_t descriptors_max = 1'048'576;
  uint64_t chunk_bytes_max = 1 << 20;
  uint64_t segments_max = 1'048'576;  // per plan
  transport::RowLimits rows = {};     // the chunk limit does not apply to rows
};

inline Status CheckDescriptorCount(uint64_t count, const PlanLimits& limits) {
  if (count <= limits.descriptors_max) return {};
  return Fail(ErrorCode::kResourceExhausted,
              "the transfer has " + std::to_string(count) + " descriptors; the limit is " +
                  std::to_string(limits.descriptors_max),
              "split it into several transfers");
}

// "/list/3" or "/list/3/member".
inline std::string RequestField(std::string_view list, size_t index, std::string_view member = {}) {
  std::string field = "/" + std::string(list) + "/" + std::to_string(index);
  if (!member.empty()) field += "/" + std::string(member);
  return field;
}

}  // namespace gantry::engine
