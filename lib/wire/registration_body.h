// The body of POST /v1/buffers. Thread-safe.
#pragma once

#include <string_view>

#include "lib/base/result.h"
#include "lib/codec/schema_reader.h"
#include "lib/wire/registration_request.h"

namespace gantry::wire {

// Checks the shape alone. A buffer that says nothing of its access may be read by peers.
Result<RegistrationRequest> ReadRegistrationBody(BodyFormat format, std::string_view body);

// The words of Access: "remote_read", "remote_write".
inline constexpr std::string_view kRemoteRead = "remote_read";
inline constexpr std::string_view kRemoteWrite = "remote_write";

}  // namespace gantry::wire
