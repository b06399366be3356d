// The connections of a server, and which of them give way to new ones. Used under the server's
// lock.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>

#include "lib/http/http_connection.h"

namespace gantry::http {

struct ConnectionEntry {
  std::unique_ptr<HttpConnection> connection;
  bool tcp = false;
  bool busy = false;     // a thread owns it, and it alone uses `connection`
  bool refused = false;  // beyond the most there may be, to be told so
  bool served = false;   // a request was answered, as of the last EndUse

  // The thread that owns it lets go of it.
  void EndUse() {
    busy = false;
    served = connection->has_served();
  }
};
using ConnectionEntries = std::unordered_map<uint64_t, ConnectionEntry>;  // by token, ascending

// The one that is idle longest; when none is, the one that has been longest in the state that it is
// in. Those over which no request came go first where they are half of `connections_max`, so that
// clients that only connect do not push out those that speak, and last where they are few, so that
// a new client has the time to speak; of them those of the newcomer's own socket first, as a client
// of the other socket has not waited behind the crowd. end(): all are in use.
ConnectionEntries::iterator FirstToGo(ConnectionEntries* entries, size_t connections_max, bool tcp);

// Few are refused at a time: the oldest gives way to the next. False: all are being told.
bool MakeRoomForRefusal(ConnectionEntries* entries);

// The answer of those.
std::string TooManyConnections(size_t connections_max, const std::string& hint);

}  // namespace gantry::http
