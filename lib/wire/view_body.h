// POST /v1/views: what reads its body. Thread-safe.
#pragma once

#include <string_view>

#include "lib/base/result.h"
#include "lib/codec/schema_reader.h"
#include "lib/wire/view_request.h"

namespace gantry::wire {

inline constexpr size_t kViewGroupsMax = 64;
inline constexpr size_t kSlicesMax = 64;
inline constexpr int64_t kBlockRatioMax = 4096;

Result<ViewRequest> ReadViewBody(BodyFormat format, std::string_view body);

}  // namespace gantry::wire
