// Notifications in parts: NIXL's may have any length, Gantry's messages have a limit. Each part
// says whose it is and where it belongs.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "lib/base/clock.h"
#include "lib/base/result.h"

namespace gantry::nixl {

// A sidecar keeps 4 MiB of messages for a workload, and refuses what comes while they are untaken.
inline constexpr size_t kMessageBytesMax = size_t{1} << 20;
inline constexpr size_t kAgentBytesMax = 4096;

// The messages that together are `text`, from `agent`. `id` is new for each text.
Result<std::vector<std::string>> SplitMessage(std::string_view agent, std::string_view text,
                                              uint64_t id);

// Joins parts in any order. Used by one thread at a time.
class MessageJoiner {
 public:
  // (agent, text) when `part` completes it; nothing while parts are missing. An error for what is
  // no part, and for the part of an agent whose workload is another than `workload`. `peer` is the
  // sender's sidecar.
  Result<std::optional<std::pair<std::string, std::string>>> Join(std::string_view peer,
                                                                  std::string_view workload,
                                                                  std::string_view part);

  size_t bytes() const { return bytes_; }
  // Messages whose other parts did not come, since the last call.
  size_t TakeForgotten() { return std::exchange(forgotten_, 0); }

 private:
  struct Partial {
    TimePoint since;
    uint64_t number = 0;  // in `by_age_`
    std::vector<std::string> parts;
    size_t missing = 0;
    size_t bytes = 0;
  };
  using Key = std::tuple<std::string, std::string, uint64_t>;  // peer, workload, id

  // The message that a part belongs to; a new one is counted.
  Partial& PartialOf(Key key, size_t count);
  void Forget(std::map<Key, Partial>::iterator partial);
  // Makes room: what waited longest goes, and what waited too long.
  void MakeRoom(size_t room);

  std::map<Key, Partial> partials_;
  std::map<uint64_t, Key> by_age_;
  uint64_t made_ = 0;
  size_t forgotten_ = 0;
  size_t bytes_ = 0;
};

}  // namespace gantry::nixl
