#include "sidecar/memory/piece_map.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "lib/base/byte_range.h"

namespace gantry::memory {
namespace {

uint64_t InnerLength(std::span<const wire::Piece> pieces) {
  if (pieces.size() < 3) return pieces.size() < 2 ? 0 : pieces.back().length;
  const auto inner = pieces.subspan(1, pieces.size() - 2);
  const bool equal = std::all_of(inner.begin(), inner.end(), [&](const wire::Piece& piece) {
    return piece.length == inner.front().length;
  });
  return equal ? inner.front().length : 0;
}

}  // namespace

Result<PieceMap> PieceMap::Create(std::vector<wire::Piece> pieces,
                                  std::span<const uint64_t> allocation_sizes) {
  PieceMap map;
  uint64_t end = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const wire::Piece& piece = pieces[i];
    const std::string field = "/pieces/" + std::to_string(i);
    if (piece.allocation >= allocation_sizes.size()) {
      return Fail(ErrorCode::kInvalidArgument,
                  "piece names allocation " + std::to_string(piece.allocation) + " of " +
                      std::to_string(allocation_sizes.size()),
                  {}, field + "/allocation");
    }
    if (piece.length == 0) {
      return Fail(ErrorCode::kInvalidArgument, "piece has length 0", {}, field + "/length");
    }
    const uint64_t size = allocation_sizes[piece.allocation];
    if (!Fits(piece.offset, piece.length, size)) {
      return Fail(ErrorCode::kOutOfRange,
                  "piece [" + std::to_string(piece.offset) + ", +" + std::to_string(piece.length) +
                      ") does not fit its allocation of " + std::to_string(size) + " bytes",
                  {}, field + (piece.offset > size ? "/offset" : "/length"));
    }
    if (!EndOf(end, piece.length, &end)) {
      return Fail(ErrorCode::kOutOfRange, "the pieces are longer than 2^64 bytes", {},
                  field + "/length");
    }
    map.ends_.push_back(end);
  }
  if (pieces.empty()) {
    return Fail(ErrorCode::kInvalidArgument, "a buffer has at least one piece", {}, "/pieces");
  }
  map.inner_length_ = InnerLength(pieces);
  if (map.inner_length_ != 0) {
    map.inner_inverse_ = static_cast<uint64_t>(
        std::min((Wide{1} << 64) / map.inner_length_, Wide{std::numeric_limits<uint64_t>::max()}));
  }
  map.pieces_ = std::move(pieces);
  return map;
}

size_t PieceMap::Search(uint64_t offset) const {
  return static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), offset) - ends_.begin());
}

Extent PieceMap::Locate(uint64_t offset, uint64_t length) const {
  return Cursor(*this).Locate(offset, length);
}

}  // namespace gantry::memory
