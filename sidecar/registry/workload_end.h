// Why a workload ended: the words for people, and the value of the metric's label. Thread-safe.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

namespace gantry::registry {

struct WorkloadEnd {
  std::string_view why;     // in the log, in events and in the errors of transfers
  std::string_view reason;  // of gantry_workload_ends_total
};

inline constexpr WorkloadEnd kConnectionClosed = {"its hand-off connection closed", "detached"};
inline constexpr WorkloadEnd kProcessEnded = {"its process ended", "died"};
inline constexpr WorkloadEnd kLeaseRanOut = {"its lease ran out", "expired"};
inline constexpr WorkloadEnd kDeleted = {"deleted", "deleted"};
inline constexpr WorkloadEnd kReplaced = {"replaced by another engine", "other"};
inline constexpr WorkloadEnd kNotWatched = {"its hand-off connection cannot be watched", "other"};

// The label's value for these words; "other" for words that are not above.
constexpr std::string_view ReasonOf(std::string_view why) {
  constexpr std::array all = {kConnectionClosed, kProcessEnded, kLeaseRanOut,
                              kDeleted,          kReplaced,     kNotWatched};
  const auto* const found =
      std::find_if(all.begin(), all.end(), [&](const WorkloadEnd& end) { return end.why == why; });
  return found == all.end() ? "other" : found->reason;
}

}  // namespace gantry::registry
