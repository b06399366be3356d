// A snapshot of a hold for clients. Plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace gantry::engine {

// kEnding: no new reader may start, and current readers are awaited.
enum class HoldState { kActive, kEnding, kConsumed, kExpired, kReleased };
constexpr std::string_view NameOf(HoldState state) {
  switch (state) {
    case HoldState::kActive:
      return "active";
    case HoldState::kEnding:
      return "ending";
    case HoldState::kConsumed:
      return "consumed";
    case HoldState::kExpired:
      return "expired";
    case HoldState::kReleased:
      break;
  }
  return "released";
}

struct HoldInfo {
  std::string id;
  std::string workload;
  HoldState state = HoldState::kActive;
  int64_t expires_unix_ms = 0;  // reads in progress may last longer
  std::optional<uint64_t> expected_consumers;
  uint64_t consumers = 0;  // successful reads
  uint64_t reading = 0;    // transfers that are reading it
};

}  // namespace gantry::engine
