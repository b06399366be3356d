#include "sidecar/transport/rdma/verbs/rdma_registrar.h"

#include <memory>
#include <utility>

namespace gantry::transport {

memory::NicRegistration RdmaRegistrar::Register(const std::vector<memory::NicPiece>& pieces,
                                                const wire::Access& access) {
  RegionSetOptions options;
  options.relaxed_ordering = devices_.options().relaxed_ordering;
  DeviceSet on = ChoiceFor(pieces);
  auto made = MemoryRegionSet::Register(devices_.RegionDevices(on), pieces, access, options);
  // What a device refused once and for all is known now, and others are chosen.
  for (size_t i = 0; !made && made.error().code == ErrorCode::kPathUnavailable; ++i) {
    const DeviceSet others = ChoiceFor(pieces);
    if (others == on || i == devices_.size()) break;
    on = others;
    made = MemoryRegionSet::Register(devices_.RegionDevices(on), pieces, access, options);
  }
  ASSIGN_OR_RETURN(std::shared_ptr<const MemoryRegionSet> registered, std::move(made));
  const MemoryRegionSet* const set = registered.get();
  for (const uint32_t device : set->devices().List()) chunks_[device] += set->chunks();
  // Counted until it is deregistered.
  return std::shared_ptr<const MemoryRegionSet>(
      set, [this, registered = std::move(registered)](const MemoryRegionSet* gone) mutable {
        const size_t chunks = gone->chunks();
        const DeviceSet devices = gone->devices();
        registered.reset();
        for (const uint32_t device : devices.List()) chunks_[device] -= chunks;
      });
}

}  // namespace gantry::transport
