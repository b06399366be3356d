#include "sidecar/plan/block_shape.h"

#include <algorithm>
#include <string>
#include <utility>

#include "lib/base/byte_range.h"

namespace gantry::engine {
namespace {

using wire::ByteSlice;

Result<ByteSlice> Within(const std::optional<ByteSlice>& slice, const wire::BlockLayout& layout,
                         std::string_view side) {
  const ByteSlice asked = slice.value_or(ByteSlice{0, layout.block_bytes});
  if (Fits(asked.offset, asked.length, layout.block_bytes) && asked.length > 0) return asked;
  return Fail(ErrorCode::kOutOfRange, "the slice [" + std::to_string(asked.offset) + ", +" +
                                          std::to_string(asked.length) + ") is not within the " +
                                          std::string(side) + " block of " +
                                          std::to_string(layout.block_bytes) + " bytes");
}

std::string Parts(uint32_t parts) {
  return parts == 1 ? "" : " in " + std::to_string(parts) + " parts";
}

}  // namespace

Result<BlockUnit> UnitOf(const BlockShape& shape, const wire::BlockSlice& slice,
                         const wire::BlockLayout& local, const wire::BlockLayout& remote) {
  ASSIGN_OR_RETURN(const ByteSlice here, Within(slice.local, local, "local"));
  ASSIGN_OR_RETURN(const ByteSlice there, Within(slice.remote, remote, "remote"));
  const uint64_t bytes = here.length / shape.local_parts;
  if (here.length % shape.local_parts != 0 || there.length % shape.remote_parts != 0 ||
      bytes != there.length / shape.remote_parts) {
    return Fail(ErrorCode::kInvalidArgument,
                std::to_string(here.length) + " bytes of the local block" +
                    Parts(shape.local_parts) + " do not pair with " + std::to_string(there.length) +
                    " bytes of the remote block" + Parts(shape.remote_parts),
                "give slices or a block_ratio with which both sides move the same bytes");
  }
  if (local.blocks > wire::kBlocksMax / shape.local_parts ||
      remote.blocks > wire::kBlocksMax / shape.remote_parts) {
    return Fail(ErrorCode::kInvalidArgument, "there are more than 2^32 - 1 parts of blocks");
  }
  return BlockUnit{bytes, here.offset, there.offset};
}

bool SlicesAreApart(const BlockShape& shape, bool of_local) {
  if (shape.slices.size() < 2) return true;
  std::vector<ByteSlice> slices;
  for (const wire::BlockSlice& slice : shape.slices) {
    const std::optional<ByteSlice>& side = of_local ? slice.local : slice.remote;
    if (!side) return false;  // the whole block, and another slice of it
    slices.push_back(*side);
  }
  std::sort(slices.begin(), slices.end(),
            [](const ByteSlice& a, const ByteSlice& b) { return a.offset < b.offset; });
  for (size_t i = 1; i < slices.size(); ++i) {
    if (slices[i].offset < slices[i - 1].offset + slices[i - 1].length) return false;
  }
  return true;
}

}  // namespace gantry::engine
