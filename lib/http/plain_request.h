// A request as nearly all workloads send it: read in a tenth of the time that the HTTP library
// takes, whose answer to it would be the same to the byte. Whatever else a head may have is the
// library's to read. Thread-safe.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "lib/http/http_exchange.h"

namespace gantry::http {

struct PlainRequest {
  std::string_view method;
  std::string_view path;
  std::multimap<std::string, std::string> query;
  std::string_view content_type;
  std::string_view accept;
  std::string_view authorization;
};

// Of HTTP/1.1, of up to 4 KiB, with no character that would have to be decoded, no header but Host,
// Accept, Authorization, Content-Type, Content-Length, User-Agent and "Connection: keep-alive",
// none of them twice, and those that framing hides; nothing for others. `head` has its empty line
// and was framed before (RequestFraming).
std::optional<PlainRequest> ReadPlainRequest(std::string_view head);

// Appends the response on a connection that stays open, if it is a plain one, too: it has a body,
// no headers of its own, and is a success.
bool WritePlainResponse(const Response& response, std::string* out);

}  // namespace gantry::http
