// Errors as RFC 9457 problem details. Thread-safe.
#pragma once

#include <functional>
#include <string>

#include "lib/base/error.h"
#include "lib/codec/body_writer.h"
#include "lib/http/http_exchange.h"
#include "lib/http/request_framing.h"

namespace gantry::http {

inline constexpr std::string_view kProblemType = "application/problem+json";

Response ErrorResponse(const Error& error);
// `write` appends further members to the problem object.
Response ErrorResponse(const Error& error, const std::function<void(wire::BodyWriter*)>& write);
Response RefusalResponse(Refusal refusal);

// Appends the problem as one object, as in ErrorResponse's body.
void WriteProblem(const Error& error, wire::BodyWriter* writer);

// Serialises the response with Connection: close, for requests that reach no handler.
std::string LastResponse(const Response& response);

}  // namespace gantry::http
