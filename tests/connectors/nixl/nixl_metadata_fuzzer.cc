// Feeds the plugin what a hostile agent could put into its metadata, its notifications and the
// events about them: it is read or refused, and nothing else happens.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "connectors/nixl/agent/agent_card.h"
#include "connectors/nixl/agent/inbox.h"
#include "connectors/nixl/agent/layout_request.h"
#include "connectors/nixl/agent/message_parts.h"

namespace gantry::nixl {
namespace {

constexpr size_t kHeadBytes = 24;  // of a part; its bytes 4 to 7 are the length of the agent's name

// The workload that a part has to come from.
std::string SenderOf(std::string_view part) {
  uint32_t bytes = 0;
  if (part.size() < kHeadBytes) return "";
  std::memcpy(&bytes, part.data() + 4, sizeof(bytes));
  return WorkloadOf(part.substr(kHeadBytes, bytes));
}

// `text` is parts of messages, each with two bytes of its length in front.
void JoinAll(std::string_view text) {
  MessageJoiner joiner;
  while (text.size() >= 2) {
    uint16_t bytes = 0;
    std::memcpy(&bytes, text.data(), sizeof(bytes));
    const std::string_view part = text.substr(2, bytes);
    text.remove_prefix(2 + part.size());
    static_cast<void>(joiner.Join("peer", SenderOf(part), part));
  }
}

void Check(std::string_view text) {
  static_cast<void>(ReadAgentCard(text));
  static_cast<void>(ReadMemoryCard(text));
  static_cast<void>(ReadLayoutRequest(text));
  MessageJoiner joiner;
  for (int turn = 0; turn < 2; ++turn) static_cast<void>(joiner.Join("peer", SenderOf(text), text));
  JoinAll(text);
  Inbox inbox;
  inbox.Hear(std::string(text), [](const LayoutRequest&) {});
  Notifications taken;
  inbox.TakeAll(taken);
}

}  // namespace
}  // namespace gantry::nixl

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  gantry::nixl::Check({reinterpret_cast<const char*>(data), size});
  return 0;
}
