#include "sidecar/memory/process_mapping.h"

#include <utility>

namespace gantry::memory {

Result<std::span<std::byte>> ProcessMapping::Bytes() const {
  if (source_.unsealed) {
    return Fail(ErrorCode::kPathUnavailable,
                "the memory's file can shrink, so the copy workers alone touch it",
                "use memory that is sealed against shrinking, such as a Gantry arena");
  }
  return BytesForDevices();
}

Result<std::span<std::byte>> ProcessMapping::BytesForDevices() const {
  const HostMapping* ready = ready_.load(std::memory_order_acquire);
  if (ready == nullptr) {
    if (source_.kind != wire::MemoryKind::kHost) {
      return Fail(ErrorCode::kPathUnavailable, "only host memory can be mapped by the sidecar");
    }
    const MutexLock lock(mutex_);
    if (!mapping_) {
      ASSIGN_OR_RETURN(
          HostMapping mapping,
          HostMapping::CreateEmpty(source_.fd->get(), source_.size, source_.writable,
                                   source_.unsealed ? Unsealed::kTaken : Unsealed::kRefused));
      mapping_.emplace(std::move(mapping));
      ready_.store(&*mapping_, std::memory_order_release);
    }
    ready = &*mapping_;
  }
  return std::span<std::byte>(ready->data(), ready->size());
}

Result<bool> ProcessMapping::Populate() const {
  RETURN_IF_ERROR(Bytes());
  ASSIGN_OR_RETURN(const bool prefaulted, IsPrefaulted(source_.fd->get(), source_.size));
  if (!prefaulted) return false;
  RETURN_IF_ERROR(ready_.load(std::memory_order_acquire)->Populate());
  return true;
}

}  // namespace gantry::memory
