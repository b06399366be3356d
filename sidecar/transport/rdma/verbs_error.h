// What a call of an RDMA device failed with: one table from error numbers to codes, for every
// implementation of Verbs. Stateless; thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "lib/base/error.h"

namespace gantry::transport {

// kResourceExhausted where a limit of the process or of the device is reached (ENOMEM and the
// like), kPathUnavailable where the device or the kernel has no such function, kDeviceError else.
Error VerbsError(const std::string& device, std::string_view what, int error_number);

}  // namespace gantry::transport
