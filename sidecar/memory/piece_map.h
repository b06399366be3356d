// Maps the flat bytes [0, length) of a buffer to its pieces. The only code that adds offsets of
// pieces (invariant 1). Immutable; thread-safe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lib/base/result.h"
#include "lib/codec/buffer_types.h"

namespace gantry::memory {

// A contiguous part of one allocation.
struct Extent {
  uint32_t allocation = 0;  // index into the pieces' allocation list
  uint64_t offset = 0;      // within the allocation
  uint64_t length = 0;
};

class PieceMap {
 public:
  PieceMap() = default;
  // Fails when a piece is empty, names no allocation, or lies outside of its allocation.
  static Result<PieceMap> Create(std::vector<wire::Piece> pieces,
                                 std::span<const uint64_t> allocation_sizes);

  uint64_t length() const { return ends_.empty() ? 0 : ends_.back(); }
  const std::vector<wire::Piece>& pieces() const { return pieces_; }

  // Returns the longest contiguous extent from flat `offset` on, at most `length` bytes. REQUIRES
  // Fits(offset, length, this->length()) and length > 0.
  Extent Locate(uint64_t offset, uint64_t length) const;

  // Locate for many offsets: successive offsets in one piece need no search. Used by one thread;
  // the map outlives it.
  class Cursor {
   public:
    explicit Cursor(const PieceMap& map) : map_(map) {}
    // REQUIRES the same as PieceMap::Locate.
    Extent Locate(uint64_t offset, uint64_t length) {
      if (offset - begin_ >= length_) Seek(offset);
      const uint64_t within = offset - begin_;
      return {allocation_, start_ + within, std::min(length, length_ - within)};
    }

   private:
    void Seek(uint64_t offset) {
      const size_t index = map_.IndexOf(offset);
      const wire::Piece& piece = map_.pieces_[index];
      begin_ = map_.ends_[index] - piece.length;
      length_ = piece.length;
      start_ = piece.offset;
      allocation_ = piece.allocation;
    }

    const PieceMap& map_;
    uint64_t begin_ = 0;   // flat begin of the piece
    uint64_t length_ = 0;  // length of the piece
    uint64_t start_ = 0;   // begin of the piece within its allocation
    uint32_t allocation_ = 0;
  };

 private:
  // Returns the index of the piece that contains a flat offset.
  size_t IndexOf(uint64_t offset) const {
    if (offset < ends_.front()) return 0;
    if (inner_length_ == 0) return Search(offset);
    // Multiplies by the inverse, since a division would double the time. The quotient is exact or
    // one too small.
    const uint64_t behind = offset - ends_.front();
    auto inner = static_cast<uint64_t>((Wide{behind} * inner_inverse_) >> 64);
    if (behind - inner * inner_length_ >= inner_length_) ++inner;
    return std::min(static_cast<size_t>(1 + inner), ends_.size() - 1);
  }
  size_t Search(uint64_t offset) const;

  __extension__ using Wide = unsigned __int128;

  std::vector<wire::Piece> pieces_;
  std::vector<uint64_t> ends_;  // flat end of each piece
  // The common length of all pieces except the first and the last, usual for virtual memory of GPU
  // runtimes. 0: lengths differ.
  uint64_t inner_length_ = 0;
  uint64_t inner_inverse_ = 0;  // 2^64 / inner_length_, rounded down; 2^64 - 1 for length 1
};

}  // namespace gantry::memory
