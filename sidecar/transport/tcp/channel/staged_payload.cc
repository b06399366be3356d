#include "sidecar/transport/tcp/channel/staged_payload.h"

#include <algorithm>
#include <utility>

namespace gantry::transport {

void StagedPayload::Add(const std::shared_ptr<const memory::MappedAllocation>& memory,
                        uint64_t offset, uint64_t bytes) {
  total_ += bytes;
  if (memory->for_workers_only()) staged_bytes_ += bytes;
  if (!pieces_.empty()) {
    Piece& last = pieces_.back();
    if (last.memory == memory && last.offset + last.bytes == offset) {
      last.bytes += bytes;
      return;
    }
  }
  pieces_.push_back({memory, offset, bytes});
}

size_t StagedPayload::slices_needed() const {
  return (staged_bytes_ + kStagingSliceBytes - 1) / kStagingSliceBytes;
}

Result<bool> StagedPayload::TryPlace(ScatterList* places, SlicePool::Granted later) {
  std::optional<SliceLease> lease = SliceLease();
  if (slices_needed() > 0) lease = half_.slices.Take(slices_needed(), std::move(later), &ticket_);
  if (!lease) return false;
  RETURN_IF_ERROR(Place(*std::move(lease), places));
  return true;
}

Status StagedPayload::Place(SliceLease lease, ScatterList* places) {
  lease_ = std::move(lease);
  ticket_ = 0;
  ranges_.clear();
  places->Clear();
  uint64_t staged = 0;
  for (const Piece& piece : pieces_) {
    if (piece.memory->for_workers_only()) {
      PlaceOnStage(piece, &staged, places);
      continue;
    }
    ASSIGN_OR_RETURN(const std::span<std::byte> bytes, piece.memory->in_process().Bytes());
    places->Add(bytes.subspan(piece.offset, piece.bytes).data(), piece.bytes);
  }
  return {};
}

void StagedPayload::PlaceOnStage(const Piece& piece, uint64_t* staged, ScatterList* places) {
  for (uint64_t done = 0; done < piece.bytes;) {
    const uint64_t within = *staged % kStagingSliceBytes;
    const uint64_t slice = lease_.slices()[*staged / kStagingSliceBytes];
    const uint64_t at = slice * kStagingSliceBytes + within;
    const uint64_t bytes = std::min(piece.bytes - done, kStagingSliceBytes - within);
    places->Add(half_.memory.subspan(at, bytes).data(), bytes);
    if (done > 0 && ranges_.back().stage_offset + ranges_.back().bytes == half_.stage_offset + at) {
      ranges_.back().bytes += bytes;  // the next slice lies beside it
    } else {
      ranges_.push_back({piece.memory, piece.offset + done, half_.stage_offset + at, bytes});
    }
    *staged += bytes;
    done += bytes;
  }
}

void StagedPayload::ForgetMemory() {
  ranges_.clear();
  pieces_.clear();
}

void StagedPayload::Displace() {
  if (ticket_ != 0) half_.slices.Cancel(std::exchange(ticket_, 0));
  ranges_.clear();
  lease_.Release();
}

void StagedPayload::Copy(const Copying& copying, std::function<void(Status)> done) const {
  if (ranges_.empty()) return done({});
  StagedCopy copy;
  copy.to_buffer = copying.to_buffer;
  copy.ranges = ranges_;
  copy.priority = copying.priority;
  copy.end = copying.end;
  copy.owner = copying.owner;
  copy.done = std::move(done);
  half_.copier.Start(std::move(copy));
}

}  // namespace gantry::transport
