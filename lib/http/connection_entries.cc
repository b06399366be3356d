#include "lib/http/connection_entries.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "lib/http/error_response.h"

namespace gantry::http {
namespace {

constexpr size_t kRefusedMax = 8;

}  // namespace

ConnectionEntries::iterator FirstToGo(ConnectionEntries* entries, size_t connections_max,
                                      bool tcp) {
  const auto unused =
      std::ranges::count_if(*entries, [](const auto& each) { return !each.second.served; });
  const bool many_unused = static_cast<size_t>(unused) * 2 >= connections_max;
  const auto rank = [many_unused, tcp](const ConnectionEntry& entry) {
    const HttpConnection& connection = *entry.connection;
    const int turn = !entry.served ? (many_unused ? 0 : 2) : connection.is_idle() ? 1 : 3;
    const bool of_other_socket = turn == 0 && entry.tcp != tcp;
    return std::tuple(turn, of_other_socket, connection.since());
  };
  auto first = entries->end();
  for (auto each = entries->begin(); each != entries->end(); ++each) {
    if (each->second.busy || each->second.refused) continue;
    if (first == entries->end() || rank(each->second) < rank(first->second)) first = each;
  }
  return first;
}

bool MakeRoomForRefusal(ConnectionEntries* entries) {
  size_t refused = 0;
  auto oldest = entries->end();
  for (auto each = entries->begin(); each != entries->end(); ++each) {
    if (!each->second.refused) continue;
    ++refused;
    const bool is_older = oldest == entries->end() || each->first < oldest->first;
    if (!each->second.busy && is_older) oldest = each;
  }
  if (refused < kRefusedMax) return true;
  if (oldest == entries->end()) return false;
  entries->erase(oldest);
  return true;
}

std::string TooManyConnections(size_t connections_max, const std::string& hint) {
  return LastResponse(ErrorResponse(Error(
      ErrorCode::kResourceExhausted,
      "all of the at most " + std::to_string(connections_max) + " HTTP connections are in use",
      hint)));
}

}  // namespace gantry::http
