// The messages of the hand-off socket (SOCK_SEQPACKET, one JSON object a message). Both ends use
// these functions. Requests are answered in order, each with one reply. Stateless; thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/result.h"

namespace gantry::wire {

// Requests and their replies:
//   {"type":"attach","version":1,"lease_token":"..."}  -> {"type":"ok","workload","generation"}
//   {"type":"fds","count":n} + n descriptors (<= 253)  -> {"type":"ok","tokens":["...", ...]}
//   {"type":"release","tokens":["...", ...]}           -> {"type":"ok"}
//   {"type":"ping"}                                    -> {"type":"ok"}
//   any failure                                        -> {"type":"error","code","message","hint"}
// Tokens are 32 lower-case hex digits, a generation 16. Decoding is strict: a field that is not
// listed, is there twice or has another type is an error.
inline constexpr int kHandoffVersion = 1;
inline constexpr size_t kHandoffMessageBytesMax = 64 << 10;
inline constexpr size_t kHandoffTokensMax = 1024;  // of one message

enum class HandoffType { kAttach, kFds, kRelease, kPing };

struct HandoffRequest {
  HandoffType type = HandoffType::kPing;
  std::string lease_token;          // of kAttach
  size_t fd_count = 0;              // of kFds
  std::vector<std::string> tokens;  // of kRelease
};

struct HandoffReply {
  std::string workload;
  uint64_t generation = 0;
  std::vector<std::string> tokens;
};

std::string Encode(const HandoffRequest& request);
// kVersionMismatch for an attach of another version, whatever else is in it.
Result<HandoffRequest> DecodeHandoffRequest(std::string_view text);
std::string EncodeReply(const Result<HandoffReply>& reply);
// The other side's error is the error.
Result<HandoffReply> DecodeHandoffReply(std::string_view text);

}  // namespace gantry::wire
