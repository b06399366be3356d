// The payload of one request some of whose bytes lie on GPUs: those are in slices of the staging
// memory while they are on their way, the host's stay where they are. Used by one thread at a time.
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

  // The payload's next bytes. REQUIRES that they lie within the memory; adjacent ones become one.
  void Add(const std::shared_ptr<const memory::MappedAllocation>& memory, uint64_t offset,
           uint64_t bytes);
  uint64_t total() const { return total_; }
  size_t slices_needed() const;  // 0: all of it is the host's
  uint64_t staged_bytes() const { return staged_bytes_; }
  // Else it cannot be staged.
  bool FitsHalf() const { return slices_needed() <= half_.slices.size(); }

  // As SlicePool::Take. True: it is placed; false: `later` gets the lease, for Place.
  Result<bool> TryPlace(ScatterList* places, SlicePool::Granted later);
  Status Place(SliceLease lease, ScatterList* places);
  // Only the slices are needed from here on. REQUIRES that all of it is staged, and no copy runs.
  void ForgetMemory();
  // Gives the slices back, or waits for them no longer. REQUIRES that no copy of it runs.
  void Displace();

  // From the GPUs to the slices, or back. `done` as in StagedCopy; this stays until then.
  struct Copying {
    bool to_gpu = false;
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
  uint64_t ticket_ = 0;              // of who waits for slices; 0: nobody does
  std::vector<StagedRange> ranges_;  // once it is placed
};

}  // namespace gantry::transport
