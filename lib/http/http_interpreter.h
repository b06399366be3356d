// Parses one complete HTTP request, calls a handler and writes the response. It uses cpp-httplib's
// parser and writer without its sockets, threads and routes. Thread-safe.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "lib/http/http_exchange.h"

namespace gantry::http {

// The interpreter's view of a request's connection.
class ResponseChannel {
 public:
  virtual ~ResponseChannel() = default;
  // Sends part of a streamed response now; false when the client is gone or too slow.
  virtual bool SendNow(std::string_view bytes) = 0;
  // False when the client has closed the connection or the server stops.
  virtual bool IsWanted() = 0;
};

class HttpInterpreter {
 public:
  // `handler` runs on the caller's thread. An exception becomes a 500 with a fixed text.
  explicit HttpInterpreter(Handler handler);
  ~HttpInterpreter();

  struct Call {
    std::string_view head;  // includes the empty line
    std::string_view body;
    std::optional<uid_t> uid;
    bool may_wait = true;
    bool close_after = false;  // the response tells the client that the connection ends
    ResponseChannel* channel = nullptr;
  };
  // Appends the response to *out, unless it was streamed over the channel. Returns false when the
  // connection must be closed.
  bool Run(const Call& call, std::string* out);

  // Streamed responses end soon after this.
  void StopStreams();

 private:
  class Dialect;
  const std::unique_ptr<Dialect> dialect_;
};

}  // namespace gantry::http
