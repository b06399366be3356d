// The flat bytes [0, length) of a buffer over its pieces. The only place where offsets of pieces
// are added (invariant 1). Immutable; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lib/base/result.h"
#include "lib/wire/buffer_types.h"

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

 private:
  // Of the piece around a flat offset.
  size_t IndexOf(uint64_t offset) const;

  std::vector<wire::Piece> pieces_;
  std::vector<uint64_t> ends_;  // flat end of each piece
  // The length of all pieces but the first and the last, which is how runtimes make virtual memory;
  // 0: they differ.
  uint64_t inner_length_ = 0;
};

}  // namespace gantry::memory
