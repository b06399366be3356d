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
// With members beside those of every problem: `write` appends them, inside of the object.
Response ErrorResponse(const Error& error, const std::function<void(wire::BodyWriter*)>& write);
Response RefusalResponse(Refusal refusal);

// Appends the problem as one object, as ErrorResponse has it for a body.
void WriteProblem(const Error& error, wire::BodyWriter* writer);

// The response as bytes of a connection that ends with it, for requests that no handler sees.
std::string LastResponse(const Response& response);

}  // namespace gantry::http
