// The bodies of PUT and PATCH /v1/holds/{id}. Thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "lib/base/result.h"
#include "lib/codec/schema_reader.h"
#include "lib/wire/hold.h"

namespace gantry::wire {

struct HoldExtension {
  std::string workload;
  uint64_t ttl_ms = 0;
};

Result<HoldRequest> ReadHoldBody(BodyFormat format, std::string_view body);
Result<HoldExtension> ReadHoldExtension(BodyFormat format, std::string_view body);

}  // namespace gantry::wire
