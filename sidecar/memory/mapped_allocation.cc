#include "sidecar/memory/mapped_allocation.h"

#include <utility>

#include "lib/base/log.h"

namespace gantry::memory {

Result<std::shared_ptr<const MappedAllocation>> MappedAllocation::Create(MemoryMapper& mapper,
                                                                         AllocationSource source) {
  ASSIGN_OR_RETURN(MemoryIdentity identity, IdentityOf(source));
  source.unsealed = source.kind == wire::MemoryKind::kHost && !CannotShrink(source.fd->get());
  ASSIGN_OR_RETURN(const MappingId mapping, mapper.Map(source));
  return std::shared_ptr<const MappedAllocation>(
      new MappedAllocation(mapper, std::move(source), identity, mapping));
}

MappedAllocation::MappedAllocation(MemoryMapper& mapper, AllocationSource source,
                                   MemoryIdentity identity, MappingId mapping)
    : mapper_(mapper),
      source_(std::move(source)),
      identity_(identity),
      mapping_(mapping),
      in_process_(source_) {}

MappedAllocation::~MappedAllocation() {
  if (auto status = mapper_.Unmap(mapping_); !status) {
    log::Error("unmapping an allocation failed",
               {{"slot", mapping_.slot}, {"bytes", source_.size}, {"error", status.error()}});
  }
}

}  // namespace gantry::memory
