// Addresses of NVIDIA GPUs, by the CUDA driver's library: what they are and how they are exported.
// Needs no context of its own. Immutable after ReadDevices; thread-safe.
#pragma once

#include <optional>
#include <string>

#include "lib/gpu/cuda/cuda_workload_device.h"
#include "lib/gpu/shared/vendor_pointers.h"

namespace gantry::gpu {
namespace cuda {

// What the driver says about an address; zeros about one that it does not know. Every value has
// room for the widest type.
struct PointerAttributes {
  uint64_t context = 0, memory_type = 0, buffer_id = 0, is_managed = 0, device = 0, has_ipc = 0,
           range_start = 0, range_size = 0, pool = 0, mapping_size = 0, mapping_base = 0;
};
gantry::Result<PointerAttributes> AttributesOf(const Calls& calls, uint64_t address);

std::string TextOf(const Uuid& uuid);  // as nvidia-smi prints it

}  // namespace cuda

class CudaPointers final : public VendorPointers<CudaApi, CudaWorkloadDevice> {
 public:
  // Whether this process has initialised the driver: not when its library has only been loaded.
  static bool IsInUse(const DynamicLibrary& library);

  using VendorPointers::VendorPointers;
  // Once, before anything else.
  Status ReadDevices();

  Result<PointerInfo> Resolve(uint64_t address) const override;
  Result<uint64_t> BufferIdOf(DeviceAddress address) const override;
  Result<IpcHandle> ExportIpc(DeviceAddress address) const override;
  Result<UniqueFd> ExportPiece(DeviceAddress address) const override;
  Result<DmaBufExport> ExportDmaBuf(const AddressRange& range) const override;

 private:
  Result<DeviceInfo> ReadDevice(int ordinal) const;
  // Nothing when the memory around it is not virtual.
  Result<std::optional<cuda::MemHandle>> RetainPiece(DeviceAddress address) const;
};

}  // namespace gantry::gpu
