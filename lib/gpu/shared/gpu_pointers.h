// The part of a vendor's driver that the owner of memory needs: what an address is, how others come
// to open it, and a look at its bytes. Opens no context unless it is said, logs nothing, and
// changes nothing for its caller, so that it can run inside of a workload. Thread-safe.
#pragma once

#include <memory>
#include <vector>

#include "lib/base/result.h"
#include "lib/base/unique_fd.h"
#include "lib/gpu/shared/gpu_types.h"
#include "lib/gpu/shared/gpu_workload_device.h"

namespace gantry::gpu {

// Copies from and to any memory of the host, in order with nothing. Each is done when it returns,
// for other processes, too.
class GpuHostCopies {
 public:
  virtual ~GpuHostCopies() = default;
  virtual Status CopyFromHost(DeviceAddress to, const void* from, uint64_t bytes) = 0;
  virtual Status CopyToHost(void* to, DeviceAddress from, uint64_t bytes) = 0;
};

// Memory as a dma-buf, which may stand for more than was asked for.
struct DmaBufExport {
  UniqueFd fd;
  uint64_t offset = 0;  // of the range's first byte in it
  uint64_t size = 0;    // of the dma-buf
};

// Errors are those of gpu_driver.h.
class GpuPointers {
 public:
  virtual ~GpuPointers() = default;
  virtual const std::vector<DeviceInfo>& devices() const = 0;

  // Of any address, also one that the driver has never seen; loads no context.
  virtual Result<PointerInfo> Resolve(uint64_t address) const = 0;
  // PointerInfo::buffer_id alone, in less time: for checks before every transfer.
  virtual Result<uint64_t> BufferIdOf(DeviceAddress address) const = 0;
  // The handle of the whole allocation around the address, whose start Resolve tells.
  virtual Result<IpcHandle> ExportIpc(DeviceAddress address) const = 0;
  // Of the piece of virtual memory around the address.
  virtual Result<UniqueFd> ExportPiece(DeviceAddress address) const = 0;
  // For devices other than GPUs, and for other processes where PointerInfo says so. REQUIRES
  // multiples of the host's page size, within one allocation or piece but for the rest of its last
  // page. Of virtual memory it may use the device meanwhile.
  virtual Result<DmaBufExport> ExportDmaBuf(const AddressRange& range) const = 0;
  // Uses the device for as long as the answer lives: the context that the workload's runtime has.
  virtual Result<std::unique_ptr<GpuHostCopies>> OpenHostCopies(int ordinal) const = 0;
  // Likewise.
  virtual Result<std::unique_ptr<GpuWorkloadDevice>> OpenWorkloadDevice(int ordinal) const = 0;
};

}  // namespace gantry::gpu
