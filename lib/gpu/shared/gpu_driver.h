// What a vendor must provide. Above this interface nobody knows which vendor it is. A driver and
// its contexts may be used by several threads, a stream or an event by one at a time. No call
// changes which device is current for its caller, or disturbs a graph that it captures.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/result.h"
#include "lib/base/unique_fd.h"
#include "lib/gpu/shared/gpu_pointers.h"
#include "lib/gpu/shared/gpu_types.h"

namespace gantry::gpu {

// Errors: a call whose feature the installed driver lacks fails with path_unavailable and names the
// symbol that is missing. What the device or the driver refuses is device_error, with the vendor's
// name for it; out of memory is resource_exhausted; memory that cannot be shared not_exportable.

// A mark in a stream; used again by recording it again.
class GpuEvent {
 public:
  virtual ~GpuEvent() = default;
  // True when everything that was in the stream before the mark is done. An error of that work is
  // returned here. Never blocks.
  virtual Result<bool> IsReached() = 0;
  virtual Status Wait() = 0;
};

// `count` rows of `bytes`; row i lies i times the pitch of its side behind the first.
struct RowCopy {
  DeviceAddress to{};
  DeviceAddress from{};
  uint64_t to_pitch = 0;
  uint64_t from_pitch = 0;
  uint64_t bytes = 0;
  uint64_t count = 0;
};
inline constexpr uint64_t kRowPitchMax = (uint64_t{1} << 31) - 1;  // any vendor's
// What CopyRows refuses before a driver sees it.
Status CheckRows(const RowCopy& rows);

// Work in the order in which it was given. Nothing has happened yet when a call returns: what it
// names must live until a mark behind it is reached. Destroying it waits.
class GpuStream {
 public:
  virtual ~GpuStream() = default;
  // Within a device, between devices, to and from pinned host memory by its device address.
  virtual Status Copy(DeviceAddress to, DeviceAddress from, uint64_t bytes) = 0;
  // In any order among themselves: REQUIRES that no two overlap in what they write, nor one in
  // what another reads. The items may go when it returns. After an error some may be under way.
  virtual Status CopyBatch(std::span<const CopyItem> items) = 0;
  // One copy of all rows, for the time that few blocks of a batch take to hand over. Refused with
  // invalid_argument: no bytes, a pitch below those of a row or above kRowPitchMax. REQUIRES that
  // the rows lie apart from those that they are copied from.
  virtual Status CopyRows(const RowCopy& rows) = 0;
  // As CopyBatch, by a kernel of the device: fast for many small items while the device is idle,
  // and waits for its turn while others compute. `items` is where the device finds `count` of them,
  // which stay as they are until a mark behind this is reached; `longest` > 0 is the length of the
  // longest. REQUIRES LoadKernels, and that the device may follow every address (peer access): one
  // that it may not ends all use of the context.
  virtual Status CopyByKernel(DeviceAddress items, uint32_t count, uint64_t longest) = 0;
  virtual Status Fill(DeviceAddress to, uint8_t value, uint64_t bytes) = 0;
  virtual Status Record(GpuEvent& event) = 0;
  virtual Status Synchronize() = 0;
};

// Memory that came from elsewhere, or was allocated here; gone when this is destroyed. REQUIRES
// that no work uses it then.
class GpuMemory {
 public:
  virtual ~GpuMemory() = default;
  virtual AddressRange range() const = 0;
};

// Host memory that the device knows. Destroyed without Unregister it has that done, and what goes
// wrong is in the log alone.
class GpuHostMemory : public GpuMemory {
 public:
  // Once. After an error the device may reach the memory still: it has to stay mapped. REQUIRES
  // that no work uses it, and that it is mapped.
  virtual Status Unregister() = 0;
};

// A descriptor of a piece of virtual memory and how long the piece is.
struct PieceFd {
  int fd = -1;  // stays the caller's
  uint64_t size = 0;
};

// [offset, offset + size) of what a dma-buf stands for.
struct DmaBufPart {
  int fd = -1;  // stays the caller's
  uint64_t offset = 0;
  uint64_t size = 0;
};

// The use of one device by this process. Opening it costs hundreds of MiB of the device's memory
// where nobody else in the process has.
class GpuContext : public GpuHostCopies {
 public:
  virtual const DeviceInfo& device() const = 0;
  virtual Result<MemoryAmount> Memory() = 0;

  virtual Result<std::unique_ptr<GpuMemory>> Allocate(uint64_t bytes) = 0;
  // Another process's allocation, whole, for as long as one of those that were answered lives; the
  // driver may answer with the same range twice. It refuses a process whose PID has the same number
  // as the exporter's, each in its own namespace: the caller compares them first. It may never
  // return, where the exporter has freed the memory: the caller watches whoever calls it.
  virtual Result<std::unique_ptr<GpuMemory>> OpenIpc(const IpcHandle& handle) = 0;
  // Another process's allocation that is_shared_by_dma_buf.
  virtual Result<std::unique_ptr<GpuMemory>> MapDmaBuf(const DmaBufPart& part) = 0;
  // Pieces of virtual memory, side by side at one address, readable and writable from this device.
  virtual Result<std::unique_ptr<GpuMemory>> MapPieces(std::span<const PieceFd> pieces) = 0;
  // New virtual memory as runtimes make it that grow: pieces of this length side by side, each to
  // be exported by itself; readable and writable from every device that reaches this one. REQUIRES
  // whole pieces, of a multiple of 2 MiB.
  virtual Result<std::unique_ptr<GpuMemory>> AllocatePieces(uint64_t bytes,
                                                            uint64_t piece_bytes) = 0;
  // New memory of another device, readable and writable from this one; no context is opened there.
  // kPathUnavailable where the driver makes none so. REQUIRES that ReachesPeer says so, and a
  // multiple of 2 MiB.
  virtual Result<std::unique_ptr<GpuMemory>> AllocateOn(int ordinal, uint64_t bytes) = 0;
  // Makes [data, data + bytes) of the host's memory known to the device; range() is where the
  // device sees it. Whole pages of memory that stays mapped until it is unregistered.
  virtual Result<std::unique_ptr<GpuHostMemory>> RegisterHost(void* data, uint64_t bytes) = 0;

  // So that kernels of this device may follow addresses of the other's memory. No error when they
  // may already.
  virtual Status EnablePeerAccess(GpuContext& other) = 0;

  // Gives back memory that only kernels of others need, as their call stacks: a half of what the
  // context takes. REQUIRES that this process runs no kernel but CopyByKernel: never in a workload.
  // Without it everything works as well.
  virtual Status TrimForCopies() = 0;

  // Makes CopyByKernel ready for the streams of this context. The first call takes a tenth of a
  // second, as the driver compiles for its device.
  virtual Status LoadKernels() = 0;

  virtual Result<std::unique_ptr<GpuStream>> NewStream() = 0;
  virtual Result<std::unique_ptr<GpuEvent>> NewEvent() = 0;
};

class GpuDriver : public GpuPointers {
 public:
  virtual std::string_view vendor() const = 0;  // "nvidia", "amd"
  virtual int version() const = 0;              // of the installed driver, as the vendor counts
  // "feature: symbol" for each feature that the installed driver lacks.
  virtual std::vector<std::string> missing() const = 0;
  virtual SharingRules sharing() const = 0;

  // Whether a device's kernels may follow addresses of another's memory, which is mapped there; by
  // copies alone the driver takes a way through the host. Opens no context.
  virtual bool ReachesPeer(int ordinal, int peer) const = 0;

  virtual Result<std::unique_ptr<GpuContext>> OpenContext(int ordinal) = 0;
};

}  // namespace gantry::gpu
