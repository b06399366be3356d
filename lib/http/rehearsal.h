// Answers a connection's last request again, for nobody, while a thread looks for the next one:
// what a request runs through leaves the processor's caches within milliseconds, also of a thread
// that never sleeps, and one of 40 us took 70 to 200 after a pause of 20 ms (docs/decisions/0026).
// By one thread at a time.
#pragma once

#include <memory>

#include "lib/base/clock.h"
#include "lib/base/unique_fd.h"
#include "lib/http/http_connection.h"
#include "lib/http/http_interpreter.h"

namespace gantry::http {

class Rehearsal {
 public:
  Rehearsal(HttpInterpreter* interpreter, ConnectionShare* share)
      : interpreter_(interpreter), share_(share) {}

  // As the connection's. Meanwhile its last request is rehearsed once in an interval, over a pair
  // of sockets, as if it had come anew. One that cannot be any more is not tried again.
  bool SpinForInput(HttpConnection* connection);

 private:
  void RunIfDue(HttpConnection* connection);
  bool Run(HttpConnection* connection);
  bool Open();
  bool Send(const std::string& request);
  bool Discard();

  HttpInterpreter* const interpreter_;
  ConnectionShare* const share_;
  TimePoint due_;
  UniqueFd client_;
  std::unique_ptr<HttpConnection> connection_;  // null: not opened yet
};

}  // namespace gantry::http
