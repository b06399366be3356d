// Buffers of other sidecars, as the engine needs them: described, mapped and kept while in use.
// Owned here, implemented by peer/. Thread-safe; may block up to its deadline.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lib/base/clock.h"
#include "lib/base/result.h"
#include "lib/wire/transfer_request.h"
#include "sidecar/memory/piece_map.h"
#include "sidecar/plan/move_plan.h"

namespace gantry::engine {

// A peer's buffer, checked and, to be moved from here, mapped by this side. Its handle is a
// shared_ptr: while one lives the mappings stay of all that were acquired with it, and a revocation
// of any of them waits.
struct RemoteBuffer {
  wire::BufferReference reference;   // with the generation that was resolved
  uint64_t workload_generation = 0;  // of its owner; 0: the peer does not say it
  uint64_t length = 0;
  wire::Access access;
  std::optional<wire::BlockLayout> layout;
  memory::PieceMap pieces;
  std::vector<transport::RemoteAllocation> allocations;
  bool mapped = false;  // as far as it can be: what is only named is not
  // The buffer as one piece, for transports that address buffers; null where none leads there.
  std::shared_ptr<const transport::RemoteTarget> target;
  memory::PieceMap flat;
  // Which acquaintance it was found through: a name that was given to another peer has a new one.
  uint64_t acquaintance = 0;
  // What the peer says of each path between it and this sidecar for this buffer.
  std::vector<wire::PathReport> paths;
  // UUIDs of the GPUs that the peer sees, as far as it says so; null: nothing is known of them.
  std::shared_ptr<const std::vector<std::string>> peer_gpus;
};

// What buffers of a peer are wanted for: to move their bytes from here, or only to be checked and
// named, because the peer moves them. Then nothing is mapped that is not mapped already.
enum class RemoteUse { kMove, kName };

class PeerGateway {
 public:
  virtual ~PeerGateway() = default;
  // All or none. One round trip for what is not cached; a stale descriptor is refreshed once. With
  // a deadline that has passed it answers at once: what is cached, or kDeadlineExceeded.
  virtual Result<std::vector<std::shared_ptr<const RemoteBuffer>>> Acquire(
      const std::string& peer, const std::vector<wire::BufferReference>& references, RemoteUse use,
      TimePoint deadline) = 0;
  // The peer refused these generations of buffers, for this reason: they are not handed out again.
  // Waits for a peer that is down, until 2.5 s after it went or the deadline.
  virtual void Refresh(const std::string& peer, const std::vector<uint64_t>& stale,
                       const Error& why, TimePoint deadline) = 0;
};

}  // namespace gantry::engine
