// The payload of a request with some bytes that only copy workers may touch: those on GPUs, and
// those of files that can shrink. They pass through slices of the staging memory; other host bytes
// stay in place. Used by one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "sidecar/copy/staging_half.h"
#include "sidecar/transport/tcp/channel/scatter_list.h"

namespace gantry::transport {

class StagedPayload {
 public:
  explicit StagedPayload(StagingHalf& half) : half_(half) {}
  StagedPayload(const StagedPayload&) = delete;
  StagedPayload& operator=(const StagedPayload&) = delete;
  ~StagedPayload() { Displace(); }

  // Appends bytes to the payload; merges adjacent ones. REQUIRES that they lie within the memory.
  void Add(const std::shared_ptr<const memory::MappedAllocation>& memory, uint64_t offset,
           uint64_t bytes);
  uint64_t total() const { return total_; }
  size_t slices_needed() const;  // 0: all of it stays in place
  uint64_t staged_bytes() const { return staged_bytes_; }
  // False: it is too large to be staged.
  bool FitsHalf() const { return slices_needed() <= half_.slices.size(); }

  // Takes slices as SlicePool::Take does. True: it is placed. False: `later` gets the lease; pass
  // it to Place.
  Result<bool> TryPlace(ScatterList* places, SlicePool::Granted later);
  Status Place(SliceLease lease, ScatterList* places);
  // Drops the references to the memory. REQUIRES that all of it is staged, and that no copy runs.
  void ForgetMemory();
  // Returns the slices, or withdraws the request for them. REQUIRES that no copy of it runs.
  void Displace();

  // Copies from the buffers to the slices, or back. `done` as in StagedCopy; this object must live
  // until then.
  struct Copying {
    bool to_buffer = false;
    int priority = 0;
    std::optional<TimePoint> end = {};
    const void* owner = nullptr;
  };
  void Copy(const Copying& copying, std::function<void(Status)> done) const;

 private:
  struct Piece {
    std::shared_ptr<const memory::MappedAllocation> memory;
    uint64_t offset = 0;
    uint64_t bytes = 0;
  };
  void PlaceOnStage(const Piece& piece, uint64_t* staged, ScatterList* places);

  StagingHalf& half_;
  std::vector<Piece> pieces_;
  uint64_t total_ = 0;
  uint64_t staged_bytes_ = 0;
  SliceLease lease_;
  uint64_t ticket_ = 0;              // of the waiting request for slices; 0: none
  std::vector<StagedRange> ranges_;  // valid once it is placed
};

}  // namespace gantry::transport
