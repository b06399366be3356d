#include "client/session/memory_locator.h"

#include <iterator>
#include <utility>

#include "client/memory/private_pages.h"
#include "lib/base/name.h"
#include "lib/base/range_text.h"

namespace gantry::client {
namespace {

// Whether memory that is not wholly in arenas is worth asking the GPU driver about.
bool MayBeOnGpu(const ArenaTable& arenas, const Error& in_arenas, const void* address) {
  return in_arenas.code == ErrorCode::kNotExportable && !arenas.Holds(address);
}

// The error for memory that neither arenas nor the GPU driver have.
Error WhichOfBoth(Error in_arenas, const Error& on_gpu) {
  if (on_gpu.code == ErrorCode::kNotFound) return in_arenas;  // no address of a GPU is possible
  return on_gpu;
}

}  // namespace

Status CheckStillThere(const std::vector<Extent>& extents) {
  for (const Extent& extent : extents) {
    const Arena& arena = *extent.arena;
    const auto address = reinterpret_cast<uintptr_t>(arena.data());
    if (arena.holders == 0 || ShowsFile(arena.fd(), address, arena.bytes())) continue;
    return Fail(ErrorCode::kStaleGeneration,
                "the memory at " + RangeText(address, arena.bytes()) +
                    " was freed or mapped anew while it was adopted",
                "unregister the buffers in it, and close its arena, before it is freed", "address");
  }
  return {};
}

Result<std::vector<gantry_extent>> MemoryLocator::Locate(const void* address,
                                                         uint64_t bytes) const {
  std::vector<gantry_extent> found;
  auto extents = arenas_.Resolve(address, bytes);
  if (extents) {
    for (const Extent& extent : *extents) {
      found.push_back({extent.arena->data(), extent.offset, extent.bytes});
    }
    return found;
  }
  if (!MayBeOnGpu(arenas_, extents.error(), address)) return Fail(std::move(extents).error());
  const auto on_gpu = GpuResolver::Locate(reinterpret_cast<uintptr_t>(address), bytes);
  if (!on_gpu) return Fail(WhichOfBoth(std::move(extents).error(), on_gpu.error()));
  for (const GpuExtent& extent : *on_gpu) {
    const uint64_t base = NumberOf(extent.info.allocation.base);
    found.push_back({reinterpret_cast<void*>(base), extent.offset, extent.bytes});
  }
  return found;
}

Result<std::vector<ResolvedPiece>> MemoryLocator::Resolve(const void* address, uint64_t bytes) {
  std::vector<ResolvedPiece> pieces;
  auto extents = arenas_.Resolve(address, bytes);
  if (extents) {
    RETURN_IF_ERROR(CheckStillThere(*extents));
    for (Extent& extent : *extents) pieces.emplace_back(std::move(extent));
    return pieces;
  }
  if (!MayBeOnGpu(arenas_, extents.error(), address)) return Fail(std::move(extents).error());
  auto on_gpu = gpu_.Resolve(reinterpret_cast<uintptr_t>(address), bytes);
  if (!on_gpu) return Fail(WhichOfBoth(std::move(extents).error(), on_gpu.error()));
  for (GpuPiece& piece : *on_gpu) pieces.emplace_back(std::move(piece));
  return pieces;
}

Result<BufferRequest> MemoryLocator::RequestFor(const gantry_buffer_spec& spec, size_t index) {
  const std::string field = "specs/" + std::to_string(index);
  BufferRequest request;
  request.name = spec.name != nullptr ? spec.name : "";
  RETURN_IF_ERROR(CheckName(request.name, field + "/name"));
  request.access.remote_read = (spec.access & GANTRY_REMOTE_READ) != 0;
  request.access.remote_write = (spec.access & GANTRY_REMOTE_WRITE) != 0;
  if ((spec.access & ~(GANTRY_REMOTE_READ | GANTRY_REMOTE_WRITE)) != 0) {
    return Fail(ErrorCode::kInvalidArgument,
                "buffer '" + request.name + "' has an access of " + std::to_string(spec.access),
                "GANTRY_REMOTE_READ, GANTRY_REMOTE_WRITE, both, or 0", field + "/access");
  }
  if (spec.pieces == nullptr || spec.piece_count == 0) {
    return Fail(ErrorCode::kInvalidArgument, "buffer '" + request.name + "' has no pieces", {},
                field + "/pieces");
  }
  request.asked.assign(spec.pieces, spec.pieces + spec.piece_count);
  RETURN_IF_ERROR(ResolvePieces(&request, field + "/pieces"));
  if (spec.block_bytes == 0 && (spec.block_stride != 0 || spec.blocks != 0)) {
    return Fail(ErrorCode::kInvalidArgument,
                "buffer '" + request.name + "' has blocks or a stride, and block_bytes is 0",
                "0 for all three: it has no blocks", field + "/block_bytes");
  }
  if (spec.block_bytes != 0) {
    if (spec.blocks == 0) {
      return Fail(ErrorCode::kInvalidArgument,
                  "buffer '" + request.name + "' has a block size and no blocks",
                  "say how many blocks it has", field + "/blocks");
    }
    const uint64_t stride = spec.block_stride != 0 ? spec.block_stride : spec.block_bytes;
    request.layout = wire::BlockLayout{spec.block_bytes, stride, spec.blocks};
  }
  return request;
}

Status MemoryLocator::ResolvePieces(BufferRequest* request, const std::string& field) {
  for (size_t i = 0; i < request->asked.size(); ++i) {
    auto pieces = Resolve(request->asked[i].address, request->asked[i].bytes);
    if (!pieces) {
      return Fail(std::move(pieces)
                      .error()
                      .WithContext("buffer '" + request->name + "'")
                      .WithField(field + "/" + std::to_string(i)));
    }
    std::move(pieces->begin(), pieces->end(), std::back_inserter(request->pieces));
  }
  return {};
}

}  // namespace gantry::client
