// Addresses of AMD GPUs, by the HIP runtime: what they are and how they are exported. Immutable
// after ReadDevices; thread-safe.
#pragma once

#include <optional>
#include <string>

#include "lib/base/mutex.h"
#include "lib/gpu/hip/hip_workload_device.h"
#include "lib/gpu/shared/vendor_pointers.h"

namespace gantry::gpu {
namespace hip {

// "GPU-" and what rocminfo prints behind it: 16 hexadecimal digits. Where a GPU has none, its PCI
// address stands for it; and partitions of one GPU are told apart by the function of theirs.
std::string IdentityOf(const Uuid& uuid, const std::string& pci_address);

}  // namespace hip

class HipPointers final : public VendorPointers<HipApi, HipWorkloadDevice> {
 public:
  // Whether this process has used HIP: not when its library has only been loaded.
  static bool IsInUse(const DynamicLibrary&) { return hip::Calls::IsInUse(); }

  using VendorPointers::VendorPointers;
  // Once, before anything else.
  Status ReadDevices();

  Result<PointerInfo> Resolve(uint64_t address) const override;
  Result<uint64_t> BufferIdOf(DeviceAddress address) const override;
  Result<IpcHandle> ExportIpc(DeviceAddress address) const override EXCLUDES(export_mutex_);
  Result<UniqueFd> ExportPiece(DeviceAddress address) const override EXCLUDES(export_mutex_);
  Result<DmaBufExport> ExportDmaBuf(const AddressRange& range) const override
      EXCLUDES(export_mutex_);

 private:
  Result<DeviceInfo> ReadDevice(int ordinal) const;
  // Of an address that the runtime knows; nothing of any other.
  template <typename Value>
  Result<std::optional<Value>> Attribute(int attribute, uint64_t address) const;
  Result<AddressRange> RangeAround(DeviceAddress address) const;
  // Nothing when the memory around it is not virtual.
  Result<std::optional<hip::MemHandle>> RetainPiece(DeviceAddress address) const;

  // Exports that ran beside each other and beside attaches were seen to hand out wrong memory
  // (ROCm/rocm-systems issue 11892).
  mutable Mutex export_mutex_;
};

}  // namespace gantry::gpu
