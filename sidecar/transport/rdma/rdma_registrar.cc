#include "sidecar/transport/rdma/rdma_registrar.h"

#include <utility>

namespace gantry::transport {

memory::OnNics RdmaRegistrar::Register(const std::vector<memory::NicPiece>& pieces,
                                       const wire::Access& access) {
  RegionSetOptions options;
  options.relaxed_ordering = devices_.options().relaxed_ordering;
  const std::vector<RegionDevice> on = devices_.RegionDevices();
  ASSIGN_OR_RETURN(std::shared_ptr<const MemoryRegionSet> registered,
                   MemoryRegionSet::Register(on, pieces, access, options));
  const MemoryRegionSet* const set = registered.get();
  chunks_ += set->chunks();
  // Counted until it is deregistered.
  return std::shared_ptr<const MemoryRegionSet>(
      set, [this, registered = std::move(registered)](const MemoryRegionSet* gone) mutable {
        const size_t chunks = gone->chunks();
        registered.reset();
        chunks_ -= chunks;
      });
}

}  // namespace gantry::transport
