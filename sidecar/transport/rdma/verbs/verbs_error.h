// Errors of RDMA device calls: one table from error numbers to codes, for every implementation of
// Verbs. Stateless; thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "lib/base/error.h"

namespace gantry::transport {

// kResourceExhausted: a limit of the process or device is reached (ENOMEM and the like).
// kPathUnavailable: the device or kernel lacks the function. Otherwise kDeviceError.
Error VerbsError(const std::string& device, std::string_view what, int error_number);

// Bytes that this process may lock (RLIMIT_MEMLOCK); nothing: unlimited.
std::optional<uint64_t> LockedBytesMax();
// A smaller limit is worth a warning.
inline constexpr uint64_t kLockedBytesSmall = uint64_t{1} << 30;

// Adds the likely cause and a remedy to a failed registration. The error number does not say which
// limit was reached, so the message names both.
Error ExplainRegion(Error error, std::optional<uint64_t> locked_bytes_max, uint32_t regions_max);

}  // namespace gantry::transport
