// The copy kernel: how the warps of a device share a list of items, and how a warp moves its bytes.
// Compiled for devices (copy_kernel.cu) and for the host (the fake driver): it includes nothing and
// reaches memory only through the Memory that it is given, whose Load<T> and Store take addresses
// that are multiples of sizeof(T). No state; any thread.
#pragma once

namespace gantry::gpu::copy_kernel {

using Uint8 = __UINT8_TYPE__;
using Uint16 = __UINT16_TYPE__;
using Uint32 = __UINT32_TYPE__;
using Uint64 = __UINT64_TYPE__;
using Vector16 __attribute__((vector_size(16))) = Uint32;  // what one instruction moves at most

// An item is a gpu::CopyItem: `to`, `from` and `bytes`, 64 bits each.
inline constexpr Uint64 kItemBytes = 24;
inline constexpr Uint32 kBlockThreads = 512;
// Vectors that a lane has under way at once.
inline constexpr Uint32 kUnroll = 8;

// Where a thread of the grid is. A warp is the threads that run as one, a lane one of them.
struct Position {
  Uint32 lane = 0;
  Uint32 lanes = 0;
  Uint64 warp = 0;
  Uint64 warps = 0;
};

// An item is cut into tiles, each of which one warp moves: small enough that all warps have work,
// also of a short list, and large enough that reading the list does not count.
inline constexpr Uint64 kShortItemBytes = 16384;
inline constexpr Uint32 kShortTileBytes = 2048;
inline constexpr Uint32 kLongTileBytes = 16384;
constexpr Uint32 TileBytes(Uint64 longest) {
  return longest <= kShortItemBytes ? kShortTileBytes : kLongTileBytes;
}
constexpr Uint64 TilesPerItem(Uint64 longest) { return (longest - 1) / TileBytes(longest) + 1; }

// One block for each multiprocessor, unless fewer have a warp for each tile.
constexpr Uint32 BlocksFor(Uint32 count, Uint64 longest, Uint32 multiprocessors,
                           Uint32 warps_per_block) {
  const Uint64 warps_max = Uint64{multiprocessors} * warps_per_block;
  const Uint64 tiles = TilesPerItem(longest);
  const Uint64 wanted = tiles < warps_max ? count * tiles : warps_max;
  return wanted < warps_max ? static_cast<Uint32>((wanted - 1) / warps_per_block + 1)
                            : multiprocessors;
}

template <typename T, typename Memory>
void CopyOneByOne(Memory& memory, const Position& at, Uint64 to, Uint64 from, Uint32 first,
                  Uint32 count) {
  for (Uint32 i = first + at.lane; i < count; i += at.lanes) {
    const Uint64 offset = Uint64{i} * sizeof(T);
    memory.Store(to + offset, memory.template Load<T>(from + offset));
  }
}

template <typename T, typename Memory>
void CopyUnrolled(Memory& memory, const Position& at, Uint64 to, Uint64 from, Uint32 count) {
  const Uint32 round = kUnroll * at.lanes;
  const Uint32 whole = count - count % round;
  for (Uint32 i = at.lane; i < whole; i += round) {
    T held[kUnroll];
    for (Uint32 k = 0; k < kUnroll; ++k)
      held[k] = memory.template Load<T>(from + Uint64{i + k * at.lanes} * sizeof(T));
    for (Uint32 k = 0; k < kUnroll; ++k)
      memory.Store(to + Uint64{i + k * at.lanes} * sizeof(T), held[k]);
  }
  CopyOneByOne<T>(memory, at, to, from, whole, count);
}

// REQUIRES that both addresses are equal modulo sizeof(T).
template <typename T, typename Memory>
void CopyByVectors(Memory& memory, const Position& at, Uint64 to, Uint64 from, Uint32 bytes) {
  constexpr Uint32 kWidth = sizeof(T);
  const Uint32 to_boundary = (kWidth - static_cast<Uint32>(to % kWidth)) % kWidth;
  const Uint32 head = to_boundary < bytes ? to_boundary : bytes;
  const Uint32 vectors = (bytes - head) / kWidth;
  CopyOneByOne<Uint8>(memory, at, to, from, 0, head);
  CopyUnrolled<T>(memory, at, to + head, from + head, vectors);
  CopyOneByOne<Uint8>(memory, at, to, from, head + vectors * kWidth, bytes);
}

template <typename Memory>
void CopyTile(Memory& memory, const Position& at, Uint64 to, Uint64 from, Uint32 bytes) {
  const Uint64 differ = to ^ from;
  if (differ % 16 == 0) {
    CopyByVectors<Vector16>(memory, at, to, from, bytes);
  } else if (differ % 8 == 0) {
    CopyByVectors<Uint64>(memory, at, to, from, bytes);
  } else if (differ % 4 == 0) {
    CopyByVectors<Uint32>(memory, at, to, from, bytes);
  } else if (differ % 2 == 0) {
    CopyByVectors<Uint16>(memory, at, to, from, bytes);
  } else {
    CopyByVectors<Uint8>(memory, at, to, from, bytes);
  }
}

// From a warp's tile to its next one. Where each has several it is odd, and the last warp has none:
// most items are shorter than the longest, so that the same places among the tiles of each have
// nothing to move, and even steps would lead the same warps there again and again.
constexpr Uint64 TileStep(Uint32 count, Uint64 tiles_per_item, Uint64 warps) {
  const bool has_several = count > warps || (count > 0 && tiles_per_item > warps / count);
  return has_several && warps > 1 && warps % 2 == 0 ? warps - 1 : warps;
}

// What the thread at a position does of `count` items, the longest of which has `longest` > 0
// bytes.
template <typename Memory>
void CopyItems(Memory& memory, const Position& at, Uint64 items, Uint32 count, Uint64 longest) {
  const Uint32 tile = TileBytes(longest);
  const Uint64 tiles = TilesPerItem(longest);
  // Every step-th tile, counted by item and tile: a count of all tiles might exceed 64 bits.
  const Uint64 step = TileStep(count, tiles, at.warps);
  if (at.warp >= step) return;
  const Uint64 item_step = step / tiles;
  const Uint64 part_step = step % tiles;
  Uint64 item = at.warp / tiles;
  Uint64 part = at.warp % tiles;
  while (item < count) {
    const Uint64 entry = items + item * kItemBytes;
    const Uint64 to = memory.template Load<Uint64>(entry);
    const Uint64 from = memory.template Load<Uint64>(entry + 8);
    const Uint64 bytes = memory.template Load<Uint64>(entry + 16);
    const Uint64 offset = part * tile;
    if (offset < bytes) {
      const Uint64 left = bytes - offset;
      CopyTile(memory, at, to + offset, from + offset,
               left < tile ? static_cast<Uint32>(left) : tile);
    }
    item += item_step;
    part += part_step;
    if (part >= tiles) {
      part -= tiles;
      ++item;
    }
  }
}

}  // namespace gantry::gpu::copy_kernel
