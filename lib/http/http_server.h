// Serves HTTP on a Unix socket, on TCP, or both. Idle and slow clients cost no
// thread: one is taken only while a complete request is handled. Thread-safe.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "lib/base/clock.h"
#include "lib/base/result.h"
#include "lib/http/http_connection.h"
#include "lib/http/http_exchange.h"
#include "lib/http/tcp_listener.h"

namespace gantry::http {

struct HttpServerOptions {
  std::string unix_path;  // empty: no Unix socket
  mode_t unix_mode = 0660;
  std::string tcp_address;  // "127.0.0.1:9410"; empty: no TCP
  Reach tcp_reach = Reach::kLoopback;
  size_t threads_min = 4;
  // As the last of these takes a request, Request::may_wait is false.
  size_t threads_max = 128;
  milliseconds thread_idle_max{10'000};  // one of more than threads_min ends then
  size_t connections_max = 1024;         // one more closes one, an idle one first; see MakeRoom
  std::string connections_hint;          // what to do when all are in use
  milliseconds sweep_interval{250};
  ConnectionLimits connection;
};

class HttpServer {
 public:
  // `handler` is called by several threads at once, and outlives the server.
  static Result<std::unique_ptr<HttpServer>> Start(const HttpServerOptions& options,
                                                   Handler handler);
  ~HttpServer();  // Stop(5 s)

  // Takes no more requests, lets the running ones finish and sends their responses; at the deadline
  // the connections are cut. Returns when no handler runs any more: what handlers wait for must end
  // by itself or be stopped before. Idempotent.
  void Stop(TimePoint deadline);

  int tcp_port() const;  // 0 without TCP
  size_t connections() const;
  size_t threads() const;

 private:
  class Loop;
  explicit HttpServer(std::unique_ptr<Loop> loop);
  const std::unique_ptr<Loop> loop_;
};

}  // namespace gantry::http
