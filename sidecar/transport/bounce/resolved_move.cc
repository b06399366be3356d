#include "sidecar/transport/bounce/resolved_move.h"

#include <algorithm>
#include <string>
#include <utility>

#include "lib/base/byte_range.h"
#include "sidecar/copy/staging_half.h"

namespace gantry::transport {
namespace {

using Allocation = std::shared_ptr<const memory::MappedAllocation>;

// Where the move's next bytes are staged.
class Places {
 public:
  explicit Places(std::span<const uint64_t> slices) : slices_(slices) {}

  // Bytes of one allocation, cut where the staging memory does not go on.
  void Stage(const Allocation& memory, uint64_t offset, uint64_t bytes,
             std::vector<StagedRange>* ranges) {
    while (bytes > 0) {
      const uint64_t within = done_ % kStagingSliceBytes;
      const uint64_t place = slices_[done_ / kStagingSliceBytes] + within;
      const uint64_t part = std::min(bytes, kStagingSliceBytes - within);
      if (!ranges->empty() && Continues(ranges->back(), memory, offset, place)) {
        ranges->back().bytes += part;
      } else {
        ranges->push_back({memory, offset, place, part});
      }
      done_ += part;
      offset += part;
      bytes -= part;
    }
  }

 private:
  static bool Continues(const StagedRange& last, const Allocation& memory, uint64_t offset,
                        uint64_t place) {
    return last.memory == memory && last.offset + last.bytes == offset &&
           last.stage_offset + last.bytes == place;
  }

  const std::span<const uint64_t> slices_;
  uint64_t done_ = 0;
};

Status CheckAllocation(const memory::MappedAllocation& allocation, const std::string& buffer,
                       bool to_buffers) {
  if (allocation.kind() != wire::MemoryKind::kGpu) {
    return Fail(ErrorCode::kPathUnavailable,
                "buffer '" + buffer + "' is no memory of a GPU, and such is not staged here",
                "it is on the RDMA devices, or goes over tcp");
  }
  if (!to_buffers || allocation.writable()) return {};
  return Fail(ErrorCode::kPermissionDenied, "buffer '" + buffer + "' was handed over read-only");
}

}  // namespace

Result<ResolvedMove> ResolveMove(TargetBuffers& buffers, std::string_view session,
                                 const wire::StagedMove& move, std::span<const uint64_t> places) {
  ResolvedMove resolved;
  resolved.uses.reserve(move.buffers.size());
  for (const wire::StagedMove::Buffer& buffer : move.buffers) {
    ASSIGN_OR_RETURN(auto use,
                     buffers.Acquire(session, buffer.id, buffer.generation, move.to_buffers));
    resolved.uses.push_back(std::move(use));
  }
  Places staged(places);
  for (const wire::StagedMove::Range& range : move.ranges) {
    const std::string& id = move.buffers[range.buffer].id;
    const TargetBuffer& use = *resolved.uses[range.buffer];
    const uint64_t length = use.pieces().length();
    if (!Fits(range.offset, range.length, length)) {
      return Fail(ErrorCode::kOutOfRange, "[" + std::to_string(range.offset) + ", +" +
                                              std::to_string(range.length) +
                                              ") lies outside of buffer '" + id + "' of " +
                                              std::to_string(length) + " bytes");
    }
    for (uint64_t done = 0; done < range.length;) {
      const memory::Extent extent = use.pieces().Locate(range.offset + done, range.length - done);
      const Allocation& allocation = use.allocations()[extent.allocation];
      RETURN_IF_ERROR(CheckAllocation(*allocation, id, move.to_buffers));
      staged.Stage(allocation, extent.offset, extent.length, &resolved.ranges);
      done += extent.length;
    }
  }
  return resolved;
}

}  // namespace gantry::transport
