// Serves HTTP on a Unix socket, on TCP, or both. A worker thread is used only while a complete
// request is handled, so idle and slow clients occupy none. Thread-safe.
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
  // A request that takes the last thread has Request::may_wait false.
  size_t threads_max = 128;
  milliseconds thread_idle_max{10'000};  // then a thread beyond threads_min ends
  size_t connections_max = 1024;         // beyond it, one is closed, an idle one first
  std::string connections_hint;          // hint of the refusal when all are in use
  milliseconds sweep_interval{250};
  ConnectionLimits connection;
};

class HttpServer {
 public:
  // `handler` runs on several threads at once, and outlives the server.
  static Result<std::unique_ptr<HttpServer>> Start(const HttpServerOptions& options,
                                                   Handler handler);
  ~HttpServer();  // calls Stop with 5 s

  // Accepts no more requests; running ones finish and their responses are sent. At the deadline the
  // connections are cut. Returns when no handler runs: a handler's own waits must end or be stopped
  // before. Idempotent.
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
