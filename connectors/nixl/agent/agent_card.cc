#include "connectors/nixl/agent/agent_card.h"

#include <array>
#include <functional>

#include "lib/base/byte_range.h"
#include "lib/base/name.h"
#include "lib/base/random_id.h"
#include "lib/codec/body_fields.h"
#include "lib/codec/body_writer.h"

namespace gantry::nixl {
namespace {

// Grows when a reader of before could misunderstand the text.
constexpr uint64_t kCardVersion = 1;
constexpr size_t kPlainNameMax = 96;
constexpr size_t kAddressBytesMax = 256;

Error Unreadable(std::string_view what) {
  return {ErrorCode::kVersionMismatch, "the metadata's " + std::string(what) + " is not Gantry's",
          "run the same version of the plugin at both agents"};
}

uint64_t HashOf(std::string_view text) {  // FNV-1a, the same in every process
  uint64_t hash = 0xcbf29ce484222325;
  for (const unsigned char byte : text) hash = (hash ^ byte) * 0x100000001b3;
  return hash;
}

}  // namespace

std::string TextOf(const AgentCard& card) {
  wire::BodyWriter out(wire::BodyFormat::kJson);
  out.BeginObject().Field("gantry", kCardVersion).Field("agent", card.agent);
  out.Field("workload", card.workload).Field("peer", card.peer).Field("node_id", card.node_id);
  return out.Field("address", card.address).EndObject().Take();
}

Result<AgentCard> ReadAgentCard(std::string_view text) {
  static constexpr std::array<std::string_view, 6> kKeys = {"gantry", "agent",   "workload",
                                                            "peer",   "node_id", "address"};
  const auto fields = wire::BodyFields::Read(text, kKeys);
  if (!fields || fields->Number("gantry") != kCardVersion)
    return Fail(Unreadable("connection info"));
  AgentCard card{fields->Text("agent"), fields->Text("workload"), fields->Text("peer"),
                 fields->Text("node_id"), fields->Text("address")};
  RETURN_IF_ERROR(CheckName(card.workload, "workload"));
  RETURN_IF_ERROR(CheckName(card.peer, "peer"));
  if (card.node_id.size() > kNameLengthMax || card.address.size() > kAddressBytesMax)
    return Fail(Unreadable("connection info"));
  return card;
}

std::string TextOf(const MemoryCard& card) {
  wire::BodyWriter out(wire::BodyFormat::kJson);
  out.BeginObject().Field("gantry", kCardVersion).Field("buffer", card.buffer);
  return out.Field("base", card.base).Field("bytes", card.bytes).EndObject().Take();
}

Result<MemoryCard> ReadMemoryCard(std::string_view text) {
  static constexpr std::array<std::string_view, 4> kKeys = {"gantry", "buffer", "base", "bytes"};
  const auto fields = wire::BodyFields::Read(text, kKeys);
  if (!fields || fields->Number("gantry") != kCardVersion) return Fail(Unreadable("registration"));
  MemoryCard card{fields->Text("buffer"), fields->Number("base"), fields->Number("bytes")};
  RETURN_IF_ERROR(CheckName(card.buffer, "buffer"));
  uint64_t end = 0;
  if (card.bytes == 0 || !EndOf(card.base, card.bytes, &end))
    return Fail(Unreadable("registration"));
  return card;
}

std::string WorkloadOf(std::string_view agent) {
  static constexpr char kPrefix[] = "nixl-";
  if (agent.size() <= kPlainNameMax && CheckName(agent, "agent"))
    return kPrefix + std::string(agent);
  // '+' keeps such a name apart from that of an agent that is called so.
  return "nixl+" + HexOf(HashOf(agent)) + HexOf(HashOf(std::string(agent.rbegin(), agent.rend())));
}

}  // namespace gantry::nixl
