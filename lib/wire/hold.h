// Holds: an owner's promise, with an expiry, that blocks keep their content, and what a reader asks
// the owner for. Plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/result.h"

namespace gantry::wire {

// The same blocks of each of these buffers; no list: all of them.
struct HoldGroup {
  std::vector<std::string> buffers;
  std::optional<std::vector<uint64_t>> blocks;
};

inline constexpr int64_t kHoldConsumersMax = 1'000'000;
inline constexpr size_t kHoldIdBytesMax = 512;

// Whether it is an id of a hold: any text of 1 to kHoldIdBytesMax bytes of UTF-8, as engines choose
// the ids of their requests. `field` is what the error names.
Status CheckHoldId(std::string_view id, std::string_view field);

struct HoldRequest {
  std::string workload;
  std::vector<HoldGroup> groups;
  uint64_t ttl_ms = 0;
  std::optional<uint64_t> expected_consumers;  // none: only time and its owner end it
};

struct HeldBuffer {
  std::string name;
  uint64_t generation = 0;  // as the reader knows it
};

// What one transfer reads of a hold: these blocks of each of these buffers; no list: anything.
struct HoldUsePart {
  std::vector<HeldBuffer> buffers;
  std::optional<std::vector<uint64_t>> blocks;
};

struct HoldUse {
  std::string workload;  // the owner's
  std::string hold;
  std::vector<HoldUsePart> parts;
  uint64_t for_ms = 0;     // it is over by then, whatever is heard of it
  uint64_t consumers = 1;  // as how many it counts if it succeeds
};

struct HoldUseEnd {
  uint64_t use = 0;  // the number that its owner gave it
  bool succeeded = false;
};

}  // namespace gantry::wire
