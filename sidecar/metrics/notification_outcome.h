// The outcomes of notifications, at either end. Closed sets; plain values.
#pragma once

#include <array>
#include <string_view>

namespace gantry::metrics {

enum class NotificationDirection { kSent, kReceived };
inline constexpr std::array<std::string_view, 2> kNotificationDirectionNames = {"sent", "received"};

enum class NotificationOutcome {
  kSucceeded,
  kFailed,
  kExpired,
  kRejected,
  kRepeated,  // a retry of one that was delivered before
};
inline constexpr std::array<std::string_view, 5> kNotificationOutcomeNames = {
    "succeeded", "failed", "expired", "rejected", "repeated"};

}  // namespace gantry::metrics
