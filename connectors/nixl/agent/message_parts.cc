#include "connectors/nixl/agent/message_parts.h"

#include <algorithm>
#include <cstring>

#include "client/include/gantry_messages.h"
#include "connectors/nixl/agent/agent_card.h"

namespace gantry::nixl {
namespace {

constexpr std::string_view kPartMagic = "GNX1";
constexpr size_t kPartialBytesMax = size_t{64} << 20;
constexpr size_t kPartialOverhead = 512;  // of one message, besides its parts
constexpr milliseconds kPartialLife{120'000};

// In front of each part, lowest byte first; the agent's name and the part itself follow.
struct PartHead {
  char magic[4];
  uint32_t agent_bytes;
  uint64_t id;
  uint32_t index;
  uint32_t count;
};
static_assert(sizeof(PartHead) == 24);

Error NoPart(std::string_view why) {
  return {ErrorCode::kMalformedBody, "a message is no part of a notification: " + std::string(why)};
}

}  // namespace

Result<std::vector<std::string>> SplitMessage(std::string_view agent, std::string_view text,
                                              uint64_t id) {
  if (text.size() > kMessageBytesMax) {
    return Fail(ErrorCode::kInvalidArgument,
                "a notification of " + std::to_string(text.size()) + " bytes",
                "at most " + std::to_string(kMessageBytesMax));
  }
  const size_t room = GANTRY_MESSAGE_BYTES_MAX - sizeof(PartHead) - agent.size();
  const size_t count = std::max<size_t>(1, (text.size() + room - 1) / room);
  std::vector<std::string> parts(count);
  PartHead head{{}, static_cast<uint32_t>(agent.size()), id, 0, static_cast<uint32_t>(count)};
  std::memcpy(head.magic, kPartMagic.data(), kPartMagic.size());
  for (size_t i = 0; i < count; ++i) {
    head.index = static_cast<uint32_t>(i);
    parts[i].append(reinterpret_cast<const char*>(&head), sizeof(head)).append(agent);
    parts[i].append(text.substr(std::min(text.size(), i * room), room));
  }
  return parts;
}

Result<std::optional<std::pair<std::string, std::string>>> MessageJoiner::Join(
    std::string_view peer, std::string_view workload, std::string_view part) {
  PartHead head;
  if (part.size() < sizeof(head)) return Fail(NoPart("it is too short"));
  std::memcpy(&head, part.data(), sizeof(head));
  part.remove_prefix(sizeof(head));
  if (std::string_view(head.magic, sizeof(head.magic)) != kPartMagic)
    return Fail(NoPart("it does not begin as one"));
  if (head.agent_bytes > kAgentBytesMax || head.agent_bytes > part.size() || head.count == 0 ||
      head.index >= head.count || head.count > kMessageBytesMax / (GANTRY_MESSAGE_BYTES_MAX / 2))
    return Fail(NoPart("its numbers are wrong"));
  std::string agent(part.substr(0, head.agent_bytes));
  part.remove_prefix(head.agent_bytes);
  if (WorkloadOf(agent) != workload) return Fail(NoPart("it names another agent than its sender"));
  if (head.count == 1) return std::pair(std::move(agent), std::string(part));

  MakeRoom(part.size());
  Key key{peer, workload, head.id};
  Partial& partial = PartialOf(key, head.count);
  if (partial.parts.size() != head.count || !partial.parts[head.index].empty() || part.empty())
    return Fail(NoPart("it does not fit to those before"));
  partial.parts[head.index] = part;
  partial.bytes += part.size();
  bytes_ += part.size();
  if (--partial.missing != 0) return std::nullopt;
  std::string text;
  for (const std::string& piece : partial.parts) text += piece;
  Forget(partials_.find(key));
  return std::pair(std::move(agent), std::move(text));
}

MessageJoiner::Partial& MessageJoiner::PartialOf(Key key, size_t count) {
  const auto [found, is_new] = partials_.try_emplace(key);
  Partial& partial = found->second;
  if (!is_new) return partial;
  partial.since = Clock::now();
  partial.number = ++made_;
  partial.parts.resize(count);
  partial.missing = count;
  partial.bytes = kPartialOverhead + count * sizeof(std::string);
  bytes_ += partial.bytes;
  by_age_.emplace(partial.number, std::move(key));
  return partial;
}

void MessageJoiner::Forget(std::map<Key, Partial>::iterator partial) {
  bytes_ -= partial->second.bytes;
  by_age_.erase(partial->second.number);
  partials_.erase(partial);
}

void MessageJoiner::MakeRoom(size_t room) {
  const TimePoint now = Clock::now();
  while (!by_age_.empty()) {
    const auto oldest = partials_.find(by_age_.begin()->second);
    if (bytes_ + room <= kPartialBytesMax && now - oldest->second.since < kPartialLife) return;
    Forget(oldest);
    ++forgotten_;
  }
}

}  // namespace gantry::nixl
