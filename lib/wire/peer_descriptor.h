// What sidecars tell each other about themselves and their buffers, after the checks on receipt.
// Plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lib/base/host_port.h"
#include "lib/codec/buffer_types.h"
#include "lib/wire/rdma_types.h"

namespace gantry::wire {

struct PeerIdentity {
  std::string name;
  uint64_t generation = 0;  // random, new at every start
  std::string node_id;      // boot id: two sidecars with the same one share memory
  std::string build;        // version, for people

  bool operator==(const PeerIdentity&) const = default;
};

struct PeerAllocation {
  uint64_t id = 0;  // unique in the life of the owner's generation
  uint64_t size = 0;
  bool writable = false;
  MemoryKind kind = MemoryKind::kHost;
  GpuFacts gpu = {};  // of GPU memory
  // Likewise: equal for the same memory, whichever of the node's sidecars tells of it; both 0: it
  // is not known.
  uint64_t identity_high = 0;
  uint64_t identity_low = 0;

  bool operator==(const PeerAllocation&) const = default;
};

struct PeerBuffer {
  std::string workload;
  std::string name;
  std::string id;
  uint64_t generation = 0;
  uint64_t workload_generation = 0;  // 0: the owner does not say it
  uint64_t length = 0;
  Access access;
  std::optional<BlockLayout> layout;
  std::vector<Piece> pieces;
  std::vector<PeerAllocation> allocations;
  std::vector<PathReport> paths;
  std::vector<RdmaChunk> rdma_chunks;  // cover it in this order; empty: it is on no device
  std::vector<uint32_t> rdma_devices;  // the owner's that the keys are of; empty: all
};

// An allocation of a described buffer, under that buffer's access.
struct WantedAllocation {
  std::string buffer_id;
  uint64_t buffer_generation = 0;
  uint64_t allocation_id = 0;
  bool writable = false;
};

// Where a peer takes data connections, and what lets them in.
struct PeerStreams {
  HostPort address;
  std::vector<std::string> tickets;
  bool tls = false;
  std::string certificate_sha256;  // with TLS: of the one that it shows, 32 bytes
};

struct PeerRevocation {
  uint64_t id = 0;
  std::string buffer_id;
  uint64_t buffer_generation = 0;
  uint32_t grace_ms = 0;     // running uses may go on
  uint32_t deadline_ms = 0;  // the owner waits no longer
  bool suspended = false;
};

}  // namespace gantry::wire
