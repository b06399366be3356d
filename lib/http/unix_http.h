// The HTTP/1.1 client of libgantry and the command-line tools, for one Unix socket: a request is
// one write, an answer as few reads as it takes, and connections are kept for the next request.
// Raises no SIGPIPE. Thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lib/base/clock.h"
#include "lib/base/mutex.h"
#include "lib/base/unique_fd.h"
#include "lib/http/http_reply_parser.h"

namespace gantry::http {

struct HttpRequest {
  std::string_view method;
  std::string_view target;     // path and query, already escaped
  std::string_view body = {};  // empty: none
  std::string_view body_type = "application/json";
  std::string_view answer_type = "application/json";  // problems are JSON all the same
  std::string_view bearer = {};                       // lease token; empty: none
  // May be sent again when a kept connection turns out to be dead: doing it twice does no harm.
  bool repeatable = false;
  milliseconds timeout{0};
};

class UnixHttp {
 public:
  static constexpr size_t kIdleConnectionsMax = 4;

  explicit UnixHttp(std::string socket_path) : socket_path_(std::move(socket_path)) {}

  // Any answer of the server is a reply, whatever its status. Without one the error is
  // kPeerUnavailable (cannot connect), kPeerLost (ended in the middle), kDeadlineExceeded, or
  // kCancelled after Close.
  Result<HttpReply> Send(const HttpRequest& request);

  // Ends requests in flight; later ones fail.
  void Close();

  const std::string& socket_path() const { return socket_path_; }

 private:
  struct Connection {
    UniqueFd fd;
    bool used = false;        // a request was answered
    milliseconds timeout{0};  // what the socket's options say
  };
  // How an exchange ended, beside its reply.
  struct End {
    bool reusable = false;
    bool untouched = false;  // no byte of an answer came
    bool unread = false;     // nor can the server have read any of the request
  };

  Result<Connection> Checkout(bool fresh, milliseconds timeout);
  void Checkin(Connection connection, bool reusable);
  Result<HttpReply> Exchange(Connection* connection, const HttpRequest& request, End* end);
  Result<HttpReply> Receive(Connection* connection, TimePoint deadline, End* end);
  Error Describe(Error error, const HttpRequest& request) const;

  const std::string socket_path_;
  mutable Mutex mutex_;
  std::vector<Connection> idle_ GUARDED_BY(mutex_);
  std::vector<int> in_flight_ GUARDED_BY(mutex_);  // descriptors, in no order
  bool closed_ GUARDED_BY(mutex_) = false;
};

}  // namespace gantry::http
