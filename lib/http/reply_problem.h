// The problem details (RFC 9457) of a reply as an Error: what error_response.h writes. Thread-safe.
#pragma once

#include <optional>
#include <string>

#include "lib/base/result.h"
#include "lib/codec/body_fields.h"
#include "lib/http/http_reply_parser.h"

namespace gantry::http {

// The problem below `prefix`, of fields that were read by the keys code, detail, title, hint and
// field. Nothing: there is none.
std::optional<Error> ProblemIn(const wire::BodyFields& fields, const std::string& prefix);

// The body of a reply in the 200s; else the problem in it, or why there is none, as an Error.
Result<std::string> BodyOrProblem(Result<HttpReply> reply);

}  // namespace gantry::http
