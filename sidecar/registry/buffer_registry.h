// Every registered buffer, over allocations that are counted: mapped once, shared by all buffers
// inside of them, unmapped with the last one. Registration is all or nothing. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/mutex.h"
#include "lib/base/result.h"
#include "lib/wire/registration_request.h"
#include "sidecar/memory/memory_mapper.h"
#include "sidecar/registry/buffer.h"
#include "sidecar/registry/workload_table.h"

namespace gantry::registry {

// Tells others that a buffer goes away or was replaced, and waits for them. Owned here,
// implemented by the peer API.
class RevocationSink {
 public:
  virtual ~RevocationSink() = default;
  // Peers stop using the buffer and unmap it; returns the names of those that had not confirmed by
  // the deadline.
  virtual std::vector<std::string> Revoke(const Buffer::Description& buffer,
                                          TimePoint deadline) = 0;
};

struct RegistryLimits {
  size_t buffers_max = 100'000;
  size_t buffers_per_request_max = 16'384;
  size_t pieces_per_buffer_max = 65'536;
};

struct RegistryTotals {
  size_t buffers = 0;
  size_t allocations = 0;
  uint64_t registered_bytes = 0;  // sum of the buffers' lengths
  uint64_t mapped_bytes = 0;      // sum of the allocations' sizes
};

class BufferRegistry {
 public:
  BufferRegistry(RegistryLimits limits, memory::MemoryMapper& mapper, WorkloadTable& workloads);
  ~BufferRegistry();

  // Set once, before the first registration; null: there are no peers to tell.
  void SetRevocationSink(RevocationSink* sink);

  // Checks everything, maps what is new, then publishes all buffers at once. A name that exists
  // with the same specification answers the existing buffer; with another one it is kConflict.
  Result<std::vector<std::shared_ptr<Buffer>>> Register(const wire::RegistrationRequest& request);

  // Stops new uses, tells peers, waits for the running uses, then releases: in this order
  // (invariant 5). At the deadline it returns kDeadlineExceeded and says who still uses the
  // buffer, which stays draining: call again. Works after the owner died.
  Status Remove(std::string_view id, TimePoint deadline);
  // All buffers of a workload; goes on past failures and returns the first.
  Status RemoveAll(std::string_view workload, TimePoint deadline);
  // Unmaps everywhere and refuses transfers until Resume maps again.
  Status Suspend(std::string_view id, TimePoint deadline);
  Status Resume(std::string_view id);

  Result<std::shared_ptr<Buffer>> ById(std::string_view id) const;
  Result<std::shared_ptr<Buffer>> ByName(std::string_view workload, std::string_view name) const;
  // The buffer in use, if it is active and of this generation (0: any).
  Result<Buffer::Use> Acquire(std::string_view workload, std::string_view name,
                              uint64_t generation) const;
  // In the order of ids, those of one workload or (empty) of all; at most `limit` after `cursor`.
  std::vector<std::shared_ptr<Buffer>> List(std::string_view workload, std::string_view cursor,
                                            size_t limit) const;
  RegistryTotals Totals() const;

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace gantry::registry
