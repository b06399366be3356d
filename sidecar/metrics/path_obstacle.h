// Why a transfer did not take a path that works on this side. A closed set; plain values.
#pragma once

#include <array>
#include <string_view>

namespace gantry::metrics {

enum class PathObstacle {
  kNotRegistered,  // the local buffer is registered on no device
  kNoPort,         // no device with the local buffer has an active port
  kPeer,           // the peer reported that it cannot, or not with its buffer
  kUnreachable,    // no local device can reach the remote buffer, or can any longer
  kFailed,         // it was taken and failed during the transfer
};
inline constexpr std::array<std::string_view, 5> kPathObstacleNames = {
    "not_registered", "no_port", "peer", "unreachable", "failed"};

}  // namespace gantry::metrics
