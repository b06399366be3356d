// Any bytes on the hand-off socket: they are refused, or they decode to what encodes to the same.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "lib/codec/handoff_protocol.h"

namespace gantry::wire {
namespace {

void FuzzRequest(std::string_view text) {
  const auto request = DecodeHandoffRequest(text);
  if (!request) return;
  const auto again = DecodeHandoffRequest(Encode(*request));
  if (!again || again->type != request->type || again->lease_token != request->lease_token ||
      again->fd_count != request->fd_count || again->tokens != request->tokens) {
    std::abort();
  }
}

void FuzzReply(std::string_view text) {
  const auto reply = DecodeHandoffReply(text);
  const auto again = DecodeHandoffReply(EncodeReply(reply));
  if (again.has_value() != reply.has_value()) std::abort();
  if (!reply) {
    if (again.error().code != reply.error().code) std::abort();
    return;
  }
  if (again->workload != reply->workload || again->generation != reply->generation ||
      again->tokens != reply->tokens) {
    std::abort();
  }
}

}  // namespace
}  // namespace gantry::wire

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  gantry::wire::FuzzRequest(text);
  gantry::wire::FuzzReply(text);
  return 0;
}
