#include "client/session/registered_buffer.h"

#include <utility>
#include <variant>

namespace gantry::client {

void TakeGpuPieces(const std::vector<ResolvedPiece>& pieces, RegisteredBuffer* buffer) {
  MutexLock lock(buffer->mutex);
  buffer->asleep = false;
  buffer->gpu_pieces.clear();
  buffer->gpu_allocations.clear();
  for (const ResolvedPiece& piece : pieces) {
    const auto* const on_gpu = std::get_if<GpuPiece>(&piece);
    if (on_gpu == nullptr) continue;
    const GpuAllocation* const allocation = on_gpu->allocation.get();
    if (buffer->gpu_allocations.empty() || buffer->gpu_allocations.back() != allocation) {
      buffer->gpu_allocations.push_back(allocation);
    }
    buffer->gpu_pieces.push_back(*on_gpu);
  }
}

bool IsAsleep(RegisteredBuffer& buffer) {
  MutexLock lock(buffer.mutex);
  return buffer.asleep;
}

Status CheckGpuMemory(RegisteredBuffer& buffer, std::string field,
                      std::shared_ptr<const GpuAllocation>* last) {
  if (!buffer.on_gpu) return {};
  MutexLock lock(buffer.mutex);
  for (const GpuPiece& piece : buffer.gpu_pieces) {
    if (last != nullptr && std::exchange(*last, piece.allocation) == piece.allocation) continue;
    if (Status current = GpuResolver::CheckCurrent(piece); !current) {
      return Fail(std::move(current)
                      .error()
                      .WithContext("buffer '" + buffer.name + "'")
                      .WithField(std::move(field)));
    }
  }
  return {};
}

}  // namespace gantry::client
