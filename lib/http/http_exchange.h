// One request and one response as handlers see them, independent of the HTTP library. A request's
// views are valid during the handler's call. Used by one thread at a time.
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
  std::string_view method;  // GET also for HEAD
  std::string_view path;    // decoded
  std::string_view name;    // the path segment that matched {name} or {id}
  std::string_view body;
  std::string_view content_type;
  std::string_view accept;
  std::string_view authorization;
  std::string_view last_event_id;
  const std::multimap<std::string, std::string>* query = nullptr;  // decoded
  std::optional<uid_t> uid;  // the client process's, on a Unix socket; empty on TCP
  bool may_wait = true;      // false: no other thread is free to serve requests
  // False when the client is gone or the server stops. Handlers that wait long check it repeatedly.
  std::function<bool()> is_wanted;
};

struct Response {
  int status = 200;
  std::string content_type;
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;  // never contains text from a peer
  // If set, the server calls it repeatedly and sends what it appends. It ends when it returns false
  // or the client is gone. It may append nothing and should return within a second. The
  // connection's thread is blocked meanwhile.
  std::function<bool(std::string* chunk)> stream;
};

using Handler = std::function<Response(const Request& request)>;

}  // namespace gantry::http
