// What sidecars tell each other about staging memory that one lends to a session of the other: the
// bytes of its GPUs pass there on their way to and from RDMA devices. Plain values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lib/wire/rdma_types.h"

namespace gantry::wire {

inline constexpr int kStageSlicesMax = 256;     // of one stage
inline constexpr int kStagedRangesMax = 4'096;  // of one copy; buffers likewise

// Slices that belong to one session alone, as the owner registered them on its RDMA devices: one
// chunk each, `slice_bytes` long, with a key for each of the devices.
struct StageGrant {
  uint64_t stage = 0;  // not 0
  uint64_t slice_bytes = 0;
  std::vector<RdmaChunk> slices;
  std::vector<uint32_t> devices;  // of the owner, that the keys are of, ascending; none: all
};

// Copies between buffers of the owner, as the session was described them, and slices of a stage.
struct StagedMove {
  struct Buffer {
    std::string id;
    uint64_t generation = 0;
  };
  struct Range {
    uint32_t buffer = 0;  // index into `buffers`
    uint64_t offset = 0;  // in that buffer
    uint64_t length = 0;
  };

  uint64_t stage = 0;
  bool to_buffers = false;
  std::vector<Buffer> buffers;
  std::vector<Range> ranges;     // their bytes one after another fill
  std::vector<uint32_t> slices;  // these, in this order, each whole but the last; none twice
  int priority = 0;
  uint32_t time_ms = 0;  // from receipt: then the owner ends it by force, and says so
};

}  // namespace gantry::wire
