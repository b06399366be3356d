// What the device plugin puts into a slot's container beside devices: names on which the plugin and
// the sidecar agree. Constants.
#pragma once

#include <string_view>

namespace gantry::wire {

// Where the container finds the sockets of its peers.
inline constexpr std::string_view kPeerFolderInContainer = "/run/gantry/peers";
// Variables of the container, which the sidecar compares with what it finds. Lists have
// commas between their names.
inline constexpr std::string_view kSlotVariable = "GANTRY_SLOT";
inline constexpr std::string_view kSlotPodVariable = "GANTRY_SLOT_POD";
inline constexpr std::string_view kSlotNamespaceVariable = "GANTRY_SLOT_NAMESPACE";
inline constexpr std::string_view kSlotContainerVariable = "GANTRY_SLOT_CONTAINER";
inline constexpr std::string_view kSlotGpusVariable = "GANTRY_SLOT_GPUS";
inline constexpr std::string_view kSlotPeerGpusVariable = "GANTRY_SLOT_PEER_GPUS";
inline constexpr std::string_view kSlotRdmaVariable = "GANTRY_SLOT_RDMA_DEVICES";

}  // namespace gantry::wire
