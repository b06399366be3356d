// A buffer's registration on RDMA devices. This folder owns the interface and the rdma transport
// implements it, so that registration code does not depend on devices. Thread-safe.
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

// Registered until Deregister or destruction; keeps its mappings alive.
class NicMemory {
 public:
  virtual ~NicMemory() = default;
  virtual size_t chunks() const = 0;
  // Deregisters from all devices. After a success its keys are invalid. Continues past failures,
  // logs each and returns the first. Runs once: further calls wait for the first and return its
  // result.
  virtual Status Deregister() const = 0;
};

// A buffer's RDMA registration, or why it has none.
using NicRegistration = Result<std::shared_ptr<const NicMemory>>;

class NicRegistrar {
 public:
  virtual ~NicRegistrar() = default;
  // Registers all pieces, byte-exact and with exactly this access, on every device in use, or
  // nothing. kPathUnavailable: RDMA cannot reach this kind of memory, which is no failure of the
  // buffer.
  virtual NicRegistration Register(const std::vector<NicPiece>& pieces,
                                   const wire::Access& access) = 0;
};

}  // namespace gantry::memory
