// What kept a transfer off a path that works on this side. A closed set; plain values.
#pragma once

#include <array>
#include <string_view>

namespace gantry::metrics {

enum class PathObstacle {
  kNotRegistered,  // the local buffer is on no device
  kNoPort,         // of the devices that have the local buffer, none has an active port
  kPeer,           // the peer says that it cannot, or not with its buffer
  kUnreachable,    // no device here leads to the remote buffer, or none does any more
  kFailed,         // it was taken, and failed under the transfer
};
inline constexpr std::array<std::string_view, 5> kPathObstacleNames = {
    "not_registered", "no_port", "peer", "unreachable", "failed"};

}  // namespace gantry::metrics
