// Memory of every origin, made as programs make it that know nothing of Gantry. Of a vendor's
// driver or of its fake, whichever is loaded. One thread at a time.
#pragma once

#include <memory>
#include <vector>

#include "lib/gpu/shared/gpu_driver.h"

namespace gantry::testing {

class GpuAllocations {
 public:
  // REQUIRES that the driver is loaded. Everything is made on the device of this context.
  static Result<std::unique_ptr<GpuAllocations>> On(gpu::GpuContext& context);
  virtual ~GpuAllocations() = default;
  GpuAllocations(const GpuAllocations&) = delete;
  GpuAllocations& operator=(const GpuAllocations&) = delete;

  static constexpr uint64_t kPieceBytes = 2 << 20;

  // kDevice, kPool, kManaged, kPinned.
  Result<gpu::AddressRange> Make(gpu::MemoryOrigin origin, uint64_t bytes);
  // Pieces of these lengths (multiples of kPieceBytes), side by side.
  Result<gpu::AddressRange> MakeVirtual(const std::vector<uint64_t>& pieces,
                                        bool exportable = true);
  // Replaces one piece of what MakeVirtual answered by new memory at the same address.
  Status MapAnew(const gpu::AddressRange& range, size_t piece);
  // What Make or MakeVirtual answered.
  Status Free(const gpu::AddressRange& range);

  // A graph of a stream of this program's own, captured as runtimes do: what does not belong to it
  // spoils it. EndCapture says whether something did.
  virtual Status BeginCapture() = 0;
  virtual Status EndCapture() = 0;

  // The context or device that is current for this thread, as the vendor numbers it.
  virtual uint64_t Current() const = 0;
  virtual Status PushCurrent() const = 0;  // the device
  virtual void PopCurrent() const = 0;

 protected:
  GpuAllocations() = default;
  void FreeAll();  // before what frees goes

 private:
  struct Made {
    gpu::MemoryOrigin origin;
    gpu::AddressRange range;
    std::vector<uint64_t> pieces;
  };

  virtual Result<uint64_t> Allocate(gpu::MemoryOrigin origin, uint64_t bytes) = 0;
  virtual Status Release(gpu::MemoryOrigin origin, uint64_t address) = 0;
  virtual Result<uint64_t> Reserve(uint64_t bytes) = 0;
  virtual Status Unreserve(uint64_t address, uint64_t bytes) = 0;
  // New memory at an address of a reservation.
  virtual Status MapPiece(uint64_t address, uint64_t bytes, bool exportable) = 0;
  virtual Status Unmap(uint64_t address, uint64_t bytes) = 0;
  Status Release(const Made& made);

  std::vector<Made> made_;
};

}  // namespace gantry::testing
