// A message from one workload to another, perhaps at a peer. Plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace gantry::wire {

inline constexpr size_t kNotificationBytesMax = 64 << 10;
inline constexpr size_t kNotificationIdBytesMax = 256;
inline constexpr size_t kRequestIdBytesMax = 256;

// What its sender states, alone or attached to a transfer.
struct NotificationContent {
  std::string to;              // a workload
  uint64_t to_generation = 0;  // of it; 0: whichever lives when it arrives
  std::string request_id;      // the callers' own; may be empty
  std::string message;

  bool operator==(const NotificationContent&) const = default;
};

struct Notification {
  // The sender's sidecar. Empty and 0: this one.
  std::string from_peer;
  uint64_t from_peer_generation = 0;
  std::string from_workload;
  uint64_t from_workload_generation = 0;
  // Unique within the sender's life: what comes again with it is a retry, and is delivered once.
  std::string id;
  NotificationContent content;
};

}  // namespace gantry::wire
