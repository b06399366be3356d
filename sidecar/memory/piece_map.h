// The flat bytes [0, length) of a buffer over its pieces. The only place where offsets of pieces
// are added (invariant 1). Immutable; thread-safe.
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
  uint32_t allocation = 0;  // index in the list that the pieces refer to
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

  // The longest contiguous extent that starts at flat `offset`, cut at `length`.
  // REQUIRES Fits(offset, length, this->length()) and length > 0.
  Extent Locate(uint64_t offset, uint64_t length) const;

  // The same for many offsets: those that follow each other in one piece are not searched for.
  // One thread; the map outlives it.
  class Cursor {
   public:
    explicit Cursor(const PieceMap& map) : map_(map) {}
    // REQUIRES what Locate does.
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
    uint64_t begin_ = 0;   // flat, of the piece
    uint64_t length_ = 0;  // of the piece
    uint64_t start_ = 0;   // of the piece, within its allocation
    uint32_t allocation_ = 0;
  };

 private:
  // Of the piece around a flat offset.
  size_t IndexOf(uint64_t offset) const {
    if (offset < ends_.front()) return 0;
    if (inner_length_ == 0) return Search(offset);
    // A division takes as long as all the rest: a product with the inverse is at most one less.
    const uint64_t behind = offset - ends_.front();
    auto inner = static_cast<uint64_t>((Wide{behind} * inner_inverse_) >> 64);
    if (behind - inner * inner_length_ >= inner_length_) ++inner;
    return std::min(static_cast<size_t>(1 + inner), ends_.size() - 1);
  }
  size_t Search(uint64_t offset) const;

  __extension__ using Wide = unsigned __int128;

  std::vector<wire::Piece> pieces_;
  std::vector<uint64_t> ends_;  // flat end of each piece
  // The length of all pieces but the first and the last, which is how runtimes make virtual memory;
  // 0: they differ.
  uint64_t inner_length_ = 0;
  uint64_t inner_inverse_ = 0;  // 2^64 / inner_length_, rounded down; of 1 as if it were 2^64 - 1
};

}  // namespace gantry::memory
