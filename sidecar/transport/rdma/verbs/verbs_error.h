// What a call of an RDMA device failed with: one table from error numbers to codes, for every
// implementation of Verbs. Stateless; thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "lib/base/error.h"

namespace gantry::transport {

// kResourceExhausted where a limit of the process or of the device is reached (ENOMEM and the
// like), kPathUnavailable where the device or the kernel has no such function, kDeviceError else.
Error VerbsError(const std::string& device, std::string_view what, int error_number);

// How much memory this process may lock (RLIMIT_MEMLOCK); nothing: as much as there is.
std::optional<uint64_t> LockedBytesMax();
// Less is worth a warning.
inline constexpr uint64_t kLockedBytesSmall = uint64_t{1} << 30;

// What a registration failed with, and what can be done: which limit it was is not in the error
// number, so both are named.
Error ExplainRegion(Error error, std::optional<uint64_t> locked_bytes_max, uint32_t regions_max);

}  // namespace gantry::transport
