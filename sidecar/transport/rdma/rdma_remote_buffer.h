// A peer's buffer as rdma addresses it: its chunks, as the owner registered and announced them.
// Immutable; thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "lib/base/result.h"
#include "lib/wire/rdma_types.h"
#include "sidecar/plan/move_plan.h"
#include "sidecar/transport/rdma/verbs/device_set.h"

namespace gantry::transport {

class RdmaPeer;

class RdmaRemoteBuffer final : public RemoteTarget {
 public:
  // Returns null when rdma does not lead to the buffer.
  static const RdmaRemoteBuffer* Of(const RemoteAllocation& remote) {
    if (remote.target == nullptr) return nullptr;
    return dynamic_cast<const RdmaRemoteBuffer*>(remote.target->Over(wire::Path::kRdma));
  }
  // REQUIRES chunks that cover the buffer, as RdmaChunksOf checks, with one key per device of the
  // peer. Only the keys of `devices` are valid.
  RdmaRemoteBuffer(std::shared_ptr<RdmaPeer> peer, std::vector<wire::RdmaChunk> chunks,
                   DeviceSet devices)
      : peer_(std::move(peer)), chunks_(std::move(chunks)), devices_(devices) {
    for (const wire::RdmaChunk& chunk : chunks_) ends_.push_back(length() + chunk.length);
  }

  uint64_t length() const override { return ends_.empty() ? 0 : ends_.back(); }
  const std::shared_ptr<RdmaPeer>& peer() const { return peer_; }
  const std::vector<wire::RdmaChunk>& chunks() const { return chunks_; }
  DeviceSet devices() const { return devices_; }  // the peer's
  // Returns the chunk that contains the byte, and the chunk's offset. REQUIRES offset < length().
  std::pair<size_t, uint64_t> ChunkOf(uint64_t offset) const {
    const auto end = std::upper_bound(ends_.begin(), ends_.end(), offset);
    const auto index = static_cast<size_t>(end - ends_.begin());
    return {index, *end - chunks_[index].length};
  }

 private:
  const std::shared_ptr<RdmaPeer> peer_;
  const std::vector<wire::RdmaChunk> chunks_;
  const DeviceSet devices_;
  std::vector<uint64_t> ends_;  // end offsets in the buffer, parallel to chunks_
};

// `chunks` as the owner announced them, with a key for each of `devices`, ascending. Empty
// `devices` means all of the peer's. kMalformedBody: they do not fit the peer's devices.
Result<std::shared_ptr<const RdmaRemoteBuffer>> RdmaRemoteBufferOf(
    std::shared_ptr<RdmaPeer> peer, std::vector<wire::RdmaChunk> chunks,
    std::vector<uint32_t> devices);

}  // namespace gantry::transport
