#include "lib/wire/peer_version.h"

#include <algorithm>
#include <string>

namespace gantry::wire {
namespace {

std::string Text(PeerVersions versions) {
  return std::to_string(versions.min) + " to " + std::to_string(versions.max);
}

}  // namespace

Result<uint32_t> ChoosePeerVersion(PeerVersions ours, PeerVersions theirs) {
  if (theirs.min == 0 || theirs.min > theirs.max) {
    return Fail(ErrorCode::kMalformedBody,
                "the peer's protocol versions make no sense: " + Text(theirs));
  }
  const uint32_t chosen = std::min(ours.max, theirs.max);
  if (chosen >= ours.min && chosen >= theirs.min) return chosen;
  const bool they_are_old = theirs.max < ours.min;
  return Fail(
      ErrorCode::kVersionMismatch,
      "this sidecar speaks peer protocol versions " + Text(ours) + ", the peer " + Text(theirs),
      they_are_old ? "upgrade the peer's sidecar: neighbouring releases understand each other"
                   : "upgrade this sidecar: neighbouring releases understand each other");
}

}  // namespace gantry::wire
