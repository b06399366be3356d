// A device as the workload's own code uses it: host memory that its streams can write to, and
// writes in the order of a stream's work. In the context of the workload's runtime; logs nothing,
// and leaves what is current for its caller, and graphs that it captures, alone. Thread-safe.
#pragma once

#include <memory>

#include "lib/base/result.h"
#include "lib/gpu/shared/gpu_types.h"

namespace gantry::gpu {

// The vendor's handle of a stream of this process, as frameworks show it: also those that stand for
// default streams, such as 0.
enum class StreamHandle : uint64_t {};

// Host memory that devices of this process reach.
class GpuPinnedMemory {
 public:
  // Unpins if that was not done; what goes wrong then is lost. REQUIRES that the memory is still
  // mapped, or that Unpin has succeeded, or Abandon.
  virtual ~GpuPinnedMemory() = default;
  // Where the device finds it. That is no address of the host, and neither follows from the other.
  virtual AddressRange range() const = 0;
  // REQUIRES that no work of a device uses it any more, and that the memory is still mapped. Twice
  // is no error, nor is it that the workload has ended the context, whose pins went with it.
  virtual Status Unpin() = 0;
  // The same, without the memory that words take: whether it is not pinned any more.
  virtual bool UnpinQuietly() noexcept = 0;
  // Leaves it pinned: what could not be unpinned is never tried again.
  virtual void Abandon() noexcept = 0;
  // Whether the workload has ended the context: what its streams were given writes no more.
  virtual bool IsGone() const noexcept = 0;
};

// Errors are those of gpu_driver.h.
class GpuWorkloadDevice {
 public:
  virtual ~GpuWorkloadDevice() = default;
  // Makes whole pages of writable memory known to the device; they stay mapped until Unpin.
  virtual Result<std::unique_ptr<GpuPinnedMemory>> Pin(void* data, uint64_t bytes) = 0;
  // path_unavailable when the device or its driver writes nothing in the order of streams.
  virtual Status CheckStreamWrites() const = 0;
  // A number that no other stream of this process has or gets. invalid_argument for a stream of
  // another device or context, also for a default stream while another context is current, whose
  // it is; device_error when the context was reset since this object was made; conflict while it is
  // captured: a graph would hold the one value that is written, whenever and however often it is
  // launched. REQUIRES a stream that exists.
  virtual Result<uint64_t> IdOf(StreamHandle stream) const = 0;
  // Writes all 8 bytes at once to pinned memory when everything that the stream was given before is
  // done: whoever reads the value (acquire order) sees what that work wrote. REQUIRES that IdOf
  // has just answered, and a multiple of 8 within what Pin answered, which stays pinned until then.
  virtual Status WriteWhenDone(StreamHandle stream, DeviceAddress to, uint64_t value) = 0;
};

}  // namespace gantry::gpu
