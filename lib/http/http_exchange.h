// One request and one response as handlers see them; nothing here knows the HTTP library. The
// views of a request live as long as the handler's call. Used by one thread at a time.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lib/codec/schema_reader.h"

namespace gantry::http {

struct Request {
  std::string_view method;  // GET for HEAD as well
  std::string_view path;    // decoded
  std::string_view name;    // the part of the path in the place of {name} or {id}
  std::string_view body;
  std::string_view content_type;
  std::string_view accept;
  std::string_view authorization;
  std::string_view last_event_id;
  const std::multimap<std::string, std::string>* query = nullptr;  // decoded
  std::optional<uid_t> uid;  // of the process behind a Unix socket; empty on TCP
  bool may_wait = true;      // false: this is the last thread that can answer others
  // False when the client is gone or the server stops; a handler that waits long asks now and then.
  std::function<bool()> is_wanted;
};

struct Response {
  int status = 200;
  std::string content_type;
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;  // never text from a peer
  // If set, the body is what this appends, call by call, until it returns false or the client has
  // gone; it may append nothing, and should return within a second. Holds the thread meanwhile.
  std::function<bool(std::string* chunk)> stream;
};

using Handler = std::function<Response(const Request& request)>;

}  // namespace gantry::http
