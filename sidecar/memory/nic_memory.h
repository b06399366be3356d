// A buffer's memory as RDMA devices reach it. Owned here, implemented by the rdma transport, so
// that registering a buffer knows nothing of devices. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "lib/base/result.h"
#include "lib/codec/buffer_types.h"
#include "sidecar/memory/mapped_allocation.h"

namespace gantry::memory {

// Bytes [offset, offset + length) of an allocation: one piece of a buffer, in its order.
struct NicPiece {
  std::shared_ptr<const MappedAllocation> allocation;
  uint64_t offset = 0;
  uint64_t length = 0;
};

// Registered until Deregister, or while it lives, with the mappings that it is of.
class NicMemory {
 public:
  virtual ~NicMemory() = default;
  virtual size_t chunks() const = 0;
  // Takes it back from the devices: when this returns without a failure, nothing that comes with
  // its keys touches it any more. Goes on past failures, logs each and returns the first. Done
  // once: further calls wait for the first and return the same.
  virtual Status Deregister() const = 0;
};

// What RDMA devices have of a buffer, or why they have nothing.
using OnNics = Result<std::shared_ptr<const NicMemory>>;

class NicRegistrar {
 public:
  virtual ~NicRegistrar() = default;
  // All pieces, byte for byte and with this access alone, on every device that is used, or nothing.
  // kPathUnavailable: memory of this kind has no way there, which is no failure of the buffer.
  virtual OnNics Register(const std::vector<NicPiece>& pieces, const wire::Access& access) = 0;
};

}  // namespace gantry::memory
