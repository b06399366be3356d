// Both sides of a plan over memory that a test can compare: buffers of random pieces, and what
// carries a plan out byte by byte. Used by one thread at a time.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "sidecar/plan/plan_builder.h"
#include "tests/fakes/fake_copy_pool.h"
#include "tests/fakes/test_arena.h"

namespace gantry::engine {

using testing::TestArena;

// One side of a transfer: buffers of random pieces over a few arenas.
class Side {
 public:
  Side(std::mt19937& random, memory::MemoryMapper& mapper, int arenas, uint64_t seed) {
    for (int i = 0; i < arenas; ++i) {
      arenas_.push_back(std::make_unique<TestArena>(64 * 1024, seed + static_cast<uint64_t>(i)));
      used_.push_back(0);
      memory::AllocationSource source;
      source.fd = std::make_shared<UniqueFd>(arenas_.back()->Fd());
      source.size = arenas_.back()->size();
      source.writable = true;
      mapped_.push_back(*memory::MappedAllocation::Create(mapper, source));
    }
    random_ = &random;
  }

  // A buffer of `length` bytes in pieces that touch no other buffer's; arenas must have room.
  void AddBuffer(uint64_t length, std::optional<wire::BlockLayout> layout, bool one_piece) {
    std::vector<wire::Piece> pieces;
    for (uint64_t left = length; left > 0;) {
      const auto arena = (*random_)() % arenas_.size();
      const uint64_t gap = (*random_)() % 5;
      const uint64_t piece = one_piece ? left : std::min<uint64_t>(left, 1 + (*random_)() % 900);
      if (used_[arena] + gap + piece > arenas_[arena]->size()) continue;
      pieces.push_back({static_cast<uint32_t>(arena), used_[arena] + gap, piece});
      used_[arena] += gap + piece;
      left -= piece;
    }
    AddPieces(pieces, layout);
  }

  void AddPieces(const std::vector<wire::Piece>& pieces,
                 std::optional<wire::BlockLayout> layout = std::nullopt) {
    std::vector<uint64_t> sizes(arenas_.size(), 64 * 1024);
    maps_.push_back(std::make_unique<memory::PieceMap>(*memory::PieceMap::Create(pieces, sizes)));
    std::vector<uint32_t> indices(arenas_.size());
    std::iota(indices.begin(), indices.end(), 0u);
    names_.push_back(std::make_unique<std::string>("b" + std::to_string(buffers_.size())));
    buffers_.push_back(
        {*names_.back(), nullptr, maps_.back().get(), layout, {indices.begin(), indices.end()}});
  }

  // The byte at a flat offset, by the pieces one after the other: not by the code under test.
  uint8_t* At(size_t buffer, uint64_t offset) const {
    for (const wire::Piece& piece : buffers_[buffer].pieces->pieces()) {
      if (offset < piece.length) return arenas_[piece.allocation]->data() + piece.offset + offset;
      offset -= piece.length;
    }
    return nullptr;
  }

  std::vector<std::unique_ptr<TestArena>> arenas_;
  std::vector<std::shared_ptr<const memory::MappedAllocation>> mapped_;
  std::vector<PlanBuffer> buffers_;

 private:
  std::mt19937* random_ = nullptr;
  std::vector<uint64_t> used_;
  std::vector<std::unique_ptr<memory::PieceMap>> maps_;
  std::vector<std::unique_ptr<std::string>> names_;
};

inline PlanInput InputOf(const wire::TransferRequest& request, const Side& local,
                         const Side& remote) {
  PlanInput input;
  input.request = &request;
  input.local = local.buffers_;
  input.remote = remote.buffers_;
  input.local_allocations = local.mapped_;
  for (const auto& mapped : remote.mapped_) input.remote_allocations.push_back({mapped});
  return input;
}

inline Result<BuiltPlan> Build(PlanInput input, const PlanLimits& limits) {
  SegmentBudget budget(1'000'000);
  SegmentReservation reservation(budget);
  return BuildPlan(std::move(input), limits, &reservation);
}

// What the plan does, byte by byte, on copies of the arenas of the destination side.
inline void Execute(const transport::MovePlan& plan, const Side& local, const Side& remote) {
  const bool read = plan.operation == wire::Operation::kRead;
  for (const transport::MoveSegment& segment : plan.segments) {
    ASSERT_LE(segment.local_offset, 64u * 1024);
    for (uint32_t i = 0; i < segment.count; ++i) {
      uint8_t* here = local.arenas_[segment.local_allocation]->data() + segment.local_offset +
                      i * segment.local_stride;
      uint8_t* there = remote.arenas_[segment.remote_allocation]->data() + segment.remote_offset +
                       i * segment.remote_stride;
      std::memcpy(read ? here : there, read ? there : here, segment.length);
    }
  }
}

inline std::vector<std::vector<uint8_t>> Bytes(const Side& side) {
  std::vector<std::vector<uint8_t>> bytes;
  for (const auto& arena : side.arenas_) {
    bytes.emplace_back(arena->data(), arena->data() + arena->size());
  }
  return bytes;
}

inline void SetBytes(const Side& side, const std::vector<std::vector<uint8_t>>& bytes) {
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::memcpy(side.arenas_[i]->data(), bytes[i].data(), bytes[i].size());
  }
}

}  // namespace gantry::engine
