// What sidecars tell each other so that their RDMA devices can work together. Plain values.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace gantry::wire {

using Gid = std::array<uint8_t, 16>;

inline constexpr int kPeerChunksMax = 262'144;  // of one buffer
inline constexpr int kQueuePairsMax = 256;      // of one connection
// A port that takes no longer messages is of no use: a transfer would be cut into too many.
inline constexpr uint32_t kMessageBytesMin = 4096;

struct RdmaDeviceAddress {
  std::string name;  // for people
  Gid gid{};
  bool ethernet = false;
  uint32_t message_bytes_max = 0;  // that its port takes as one; 0: it was not told
};

// Both ends of a connection say this of themselves.
struct QueuePairAddress {
  uint32_t number = 0;           // 24 bits
  uint32_t packet_sequence = 0;  // 24 bits
  uint16_t lid = 0;
  Gid gid{};
  uint32_t mtu = 0;        // bytes, at most
  uint32_t reads_max = 0;  // that it answers at a time
  // Of the owner's end: eight bytes that can be read there, which brings all that was written
  // through this queue pair before them to where processors see it.
  uint64_t flush_address = 0;
  uint32_t flush_key = 0;
};

// A queue pair of the caller, and which of the owner's devices is to have the other end.
struct QueuePairRequest {
  uint32_t device = 0;
  QueuePairAddress from;
};

struct QueuePairGrant {
  uint64_t connection = 0;
  std::vector<QueuePairAddress> ends;  // in the order of the requests; number 0: was not made
  uint32_t lease_ms = 0;               // after the session: until they are destroyed
};

// A chunk of a buffer as its owner registered it.
struct RdmaChunk {
  uint64_t length = 0;
  uint64_t address = 0;
  std::vector<uint32_t> keys;  // one for each of the owner's devices that have the buffer

  bool operator==(const RdmaChunk&) const = default;
};

}  // namespace gantry::wire
