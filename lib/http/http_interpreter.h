// Reads one complete HTTP request, asks a handler and writes the response, by way of cpp-httplib
// and without its sockets, threads and routes. Thread-safe: several requests at once.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "lib/http/http_exchange.h"

namespace gantry::http {

// The connection that a request came from, as far as the interpreter needs it.
class ResponseChannel {
 public:
  virtual ~ResponseChannel() = default;
  // Sends a part of a streamed response now; false when the client is gone or too slow.
  virtual bool SendNow(std::string_view bytes) = 0;
  // False when the client has hung up or the server stops.
  virtual bool IsWanted() = 0;
};

class HttpInterpreter {
 public:
  // `handler` is called on the caller's thread; what it throws becomes a 500 with a fixed text.
  explicit HttpInterpreter(Handler handler);
  ~HttpInterpreter();

  struct Call {
    std::string_view head;  // with the empty line
    std::string_view body;
    std::optional<uid_t> uid;
    bool may_wait = true;
    bool close_after = false;  // tell the client that the connection ends
    ResponseChannel* channel = nullptr;
  };
  // Appends the response to *out, unless it was streamed over the channel. False: the connection
  // ends with it.
  bool Run(const Call& call, std::string* out);

  // Streams end soon after this.
  void StopStreams();

 private:
  class Dialect;
  const std::unique_ptr<Dialect> dialect_;
};

}  // namespace gantry::http
