// Peers' buffers for the engine: described, mapped and kept while in use. This folder owns the
// interface; peer/ implements it. Thread-safe; may block until its deadline.
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

// A peer's buffer, checked and, for kMove, mapped here. Its handle is a shared_ptr. While it lives,
// the mappings of all buffers acquired with it stay, and a revocation of any of them waits.
struct RemoteBuffer {
  wire::BufferReference reference;   // includes the resolved generation
  uint64_t workload_generation = 0;  // the owner's registration; 0: unknown
  uint64_t length = 0;
  wire::Access access;
  std::optional<wire::BlockLayout> layout;
  memory::PieceMap pieces;
  std::vector<transport::RemoteAllocation> allocations;
  bool mapped = false;  // mapped as far as possible; false after kName
  // The buffer as one flat piece, for transports that address buffers; null when none leads there.
  std::shared_ptr<const transport::RemoteTarget> target;
  memory::PieceMap flat;
  // Number of the peer's registration here. A name that was given to another peer gets a new
  // number.
  uint64_t peer_registration_id = 0;
  // The peer's report on each path between it and this sidecar for this buffer.
  std::vector<wire::PathReport> paths;
  // UUIDs of the GPUs that the peer sees; null: unknown.
  std::shared_ptr<const std::vector<std::string>> peer_gpus;
};

// kMove: bytes move from here, so the buffers are mapped. kName: the peer moves them, so they are
// only checked, and nothing new is mapped.
enum class RemoteUse { kMove, kName };

class PeerGateway {
 public:
  virtual ~PeerGateway() = default;
  // All or none. One round trip for uncached buffers; a stale descriptor is refreshed once. With a
  // past deadline it returns at once: cached buffers, or kDeadlineExceeded.
  virtual Result<std::vector<std::shared_ptr<const RemoteBuffer>>> Acquire(
      const std::string& peer, const std::vector<wire::BufferReference>& references, RemoteUse use,
      TimePoint deadline) = 0;
  // Drops cached descriptors of these generations, which the peer refused with `why`. Waits for a
  // peer that is down, until 2.5 s after it went down or the deadline.
  virtual void Refresh(const std::string& peer, const std::vector<uint64_t>& stale,
                       const Error& why, TimePoint deadline) = 0;
};

}  // namespace gantry::engine
