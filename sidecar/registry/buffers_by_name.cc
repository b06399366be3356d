// The part of BufferRegistry that finds buffers by name, for transfers.
#include <utility>

#include "lib/base/random_id.h"
#include "sidecar/registry/buffer_index.h"
#include "sidecar/registry/buffer_registry.h"

namespace gantry::registry {
namespace {

// Whoever asked may be at a peer, and wants to know whether the owner is there at all.
tl::unexpected<Error> NoBufferOf(const WorkloadTable& workloads, std::string_view workload,
                                 std::string_view name) {
  if (!workloads.Get(workload)) {
    return Fail(ErrorCode::kUnregistered,
                "buffer '" + std::string(name) + "' of workload '" + std::string(workload) +
                    "' is not there: the workload has ended or has not registered yet",
                "when it is there (again), its buffers have new generations: learn them from it");
  }
  return Fail(ErrorCode::kUnregistered,
              "workload '" + std::string(workload) + "' has no buffer '" + std::string(name) + "'",
              "register it with POST /v1/buffers; GET /v1/buffers lists those that are");
}

}  // namespace

Status BufferRegistry::CheckLife(std::string_view workload, uint64_t generation) const {
  if (generation == 0) return {};
  const auto info = workloads_.Get(workload);
  if (!info || info->generation == generation) return {};
  return Fail(ErrorCode::kStaleGeneration,
              "workload '" + std::string(workload) +
                  "' was registered anew since: its generation is " + HexOf(info->generation) +
                  ", not " + HexOf(generation),
              "learn its new generation from whoever told the old one");
}

Result<std::shared_ptr<Buffer>> BufferRegistry::ByName(std::string_view workload,
                                                       std::string_view name) const {
  std::shared_ptr<Buffer> buffer;
  {
    MutexLock lock(mutex_);
    buffer = index_->ByName(workload, 0, name);
  }
  if (buffer == nullptr) return NoBufferOf(workloads_, workload, name);
  return buffer;
}

Result<Buffer::Use> BufferRegistry::Acquire(std::string_view workload, std::string_view name,
                                            uint64_t generation, std::string_view user) const {
  std::shared_ptr<Buffer> buffer;
  {
    MutexLock lock(mutex_);
    buffer = index_->ByName(workload, 0, name);
  }
  return Acquire(std::move(buffer), workload, name, generation, user);
}

std::vector<std::shared_ptr<Buffer>> BufferRegistry::AllByName(
    std::string_view workload, std::span<const wire::BufferReference> references) const {
  std::vector<std::shared_ptr<Buffer>> buffers(references.size());
  MutexLock lock(mutex_);
  for (size_t i = 0; i < references.size(); ++i) {
    const std::shared_ptr<Buffer>* found = index_->Named(workload, references[i].buffer);
    if (found != nullptr) buffers[i] = *found;
  }
  return buffers;
}

Result<Buffer::Use> BufferRegistry::Acquire(std::shared_ptr<Buffer> buffer,
                                            std::string_view workload, std::string_view name,
                                            uint64_t generation, std::string_view user) const {
  if (buffer == nullptr) return NoBufferOf(workloads_, workload, name);
  if (generation != 0 && generation != buffer->description().generation) {
    return Fail(ErrorCode::kStaleGeneration,
                "buffer '" + std::string(name) + "' was replaced: its generation is " +
                    HexOf(buffer->description().generation) + ", not " + HexOf(generation),
                "resolve the buffer again");
  }
  return Buffer::Acquire(std::move(buffer), user);
}

}  // namespace gantry::registry
