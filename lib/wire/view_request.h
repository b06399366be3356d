// A view as a caller states it: which buffers of two workloads pair up, and which part of their
// blocks moves. Plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lib/wire/transfer_request.h"

namespace gantry::wire {

// Bytes [offset, offset + length) of each block.
struct ByteSlice {
  uint64_t offset = 0;
  uint64_t length = 0;

  bool operator==(const ByteSlice&) const = default;
};

// The bytes of a block that move, on both sides; absent: all of them.
struct BlockSlice {
  std::optional<ByteSlice> local;
  std::optional<ByteSlice> remote;

  bool operator==(const BlockSlice&) const = default;
};

// So many local blocks hold what so many remote blocks hold; one of the two is 1.
struct BlockRatio {
  uint32_t local = 1;
  uint32_t remote = 1;

  bool operator==(const BlockRatio&) const = default;
};

// Without a remote buffer: every buffer whose name matches pairs with its namesake, and `*` in the
// local name stands for any characters.
struct ViewPair {
  BufferReference local;
  BufferReference remote;

  bool operator==(const ViewPair&) const = default;
};

struct ViewGroup {
  uint32_t group = 0;
  std::vector<ViewPair> pairs;
  std::vector<BlockSlice> slices;  // empty: whole blocks
  std::optional<BlockRatio> block_ratio;

  bool operator==(const ViewGroup&) const = default;
};

struct ViewRequest {
  std::string id;  // unique within the workload; empty: one is made up
  std::string workload;
  std::string peer;  // empty: this sidecar
  std::string remote_workload;
  uint64_t remote_generation = 0;  // of that workload: another life of it is refused; 0: any
  std::vector<ViewGroup> groups;   // at least one, no number twice
  bool has_groups = false;         // the body named them; else it has the members of group 0 itself

  bool operator==(const ViewRequest&) const = default;
};

}  // namespace gantry::wire
