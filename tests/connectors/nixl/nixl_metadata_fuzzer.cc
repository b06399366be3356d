// Feeds the plugin what a hostile agent could put into its metadata, its notifications and the
// events about them: it is read or refused, and nothing else happens.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "connectors/nixl/agent/agent_card.h"
#include "connectors/nixl/agent/inbox.h"
#include "connectors/nixl/agent/layout_request.h"
#include "connectors/nixl/agent/message_parts.h"

namespace gantry::nixl {
namespace {

void Check(std::string_view text) {
  static_cast<void>(ReadAgentCard(text));
  static_cast<void>(ReadMemoryCard(text));
  static_cast<void>(ReadLayoutRequest(text));
  MessageJoiner joiner;
  for (int turn = 0; turn < 2; ++turn)
    static_cast<void>(joiner.Join("peer", WorkloadOf(text.substr(0, 8)), text));
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
