// The connections of a server, and the choice of those that are closed to make room. Used under the
// server's lock.
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
  bool busy = false;     // a thread owns it and alone uses `connection`
  bool refused = false;  // beyond the limit; gets a refusal
  bool served = false;   // a request was answered, as of the last EndUse

  // Called when the owning thread releases it.
  void EndUse() {
    busy = false;
    served = connection->has_served();
  }
};
using ConnectionEntries = std::unordered_map<uint64_t, ConnectionEntry>;  // by token

// Returns the connection to close first: the longest idle one, else the one longest in its state.
// Connections without a request go first if they are half of `connections_max`. Else they go last,
// so that new clients have time to send. Among them those of the newcomer's socket type go first.
// end(): all are in use.
ConnectionEntries::iterator FirstToGo(ConnectionEntries* entries, size_t connections_max, bool tcp);

// Only few refusals are sent at a time: closes the oldest for the next. Returns false when all are
// being sent.
bool MakeRoomForRefusal(ConnectionEntries* entries);

// The response to those beyond the limit.
std::string TooManyConnections(size_t connections_max, const std::string& hint);

}  // namespace gantry::http
