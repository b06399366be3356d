// The messages of the descriptor socket between sidecars (SOCK_SEQPACKET). A connection first
// presents its lease ticket and is then kept: its end means that the initiator's mappings are gone.
// Stateless; thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "lib/base/result.h"

namespace gantry::wire {

// Requests and their replies:
//   "lease <ticket>"  -> "ok 0"
//   "fds <ticket>"    -> "ok <n>" with n descriptors (<= 253), in the order that was asked for
//   any failure       -> "error <code> <message>"
inline constexpr size_t kFdTicketRequestBytesMax = 64;
inline constexpr size_t kFdTicketReplyBytesMax = 1024;

enum class FdTicketVerb { kLease, kFds };

struct FdTicketRequest {
  FdTicketVerb verb = FdTicketVerb::kFds;
  std::string ticket;
};

std::string Encode(const FdTicketRequest& request);
Result<FdTicketRequest> DecodeFdTicketRequest(std::string_view text);
std::string EncodeFdTicketReply(const Result<size_t>& descriptors);
Result<size_t> DecodeFdTicketReply(std::string_view text);

}  // namespace gantry::wire
