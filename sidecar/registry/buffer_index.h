// The registry's lookup tables: all existing buffers by id, published ones by name. Guarded by the
// registry's lock.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "lib/base/clock.h"
#include "sidecar/registry/allocation_table.h"
#include "sidecar/registry/buffer.h"

namespace gantry::registry {

// A buffer and the records that remap its allocations after a suspension. Without records its
// memory was released.
struct RegisteredBuffer {
  std::shared_ptr<Buffer> buffer;
  std::vector<std::shared_ptr<AllocationRecord>> allocations;
};

class BufferIndex {
 public:
  // REQUIRES that the name is free in this registration of the workload. Unpublishes the names of
  // an earlier registration.
  void Publish(RegisteredBuffer registered);
  // Replaces the buffer with this id and returns the old entry: destroy it outside the lock.
  // REQUIRES that it exists with the same workload, name and length.
  RegisteredBuffer Replace(RegisteredBuffer registered);
  // Removes and returns the buffer's records: destroy them outside the lock.
  std::vector<std::shared_ptr<AllocationRecord>> TakeAllocations(std::string_view id);
  // Frees the name; the buffer can still be found by id. `deadline` is the removal's; the latest
  // one given counts.
  void Unpublish(const Buffer& buffer, TimePoint deadline);
  // Removes and returns the entry; empty when there is none. Destroy it outside the lock.
  RegisteredBuffer Erase(std::string_view id);

  const RegisteredBuffer* ById(std::string_view id) const;
  // Null when there is none. `workload_generation` 0: any.
  std::shared_ptr<Buffer> ByName(std::string_view workload, uint64_t workload_generation,
                                 std::string_view name) const;
  // Finds the published buffer; null when there is none. Valid until the index changes.
  const std::shared_ptr<Buffer>* Named(std::string_view workload, std::string_view name) const;
  // Sorted by id; an empty workload means all.
  std::vector<std::shared_ptr<Buffer>> List(std::string_view workload, std::string_view cursor,
                                            size_t limit) const;
  // Returns the buffers whose removal is past its deadline.
  std::vector<std::shared_ptr<Buffer>> Overdue(TimePoint now) const;

  size_t size() const { return by_id_.size(); }
  uint64_t bytes() const { return bytes_; }

 private:
  struct NameHash {
    using is_transparent = void;  // allows lookups by string_view
    size_t operator()(std::string_view name) const { return std::hash<std::string_view>()(name); }
  };
  template <typename Value>
  using ByText = std::unordered_map<std::string, Value, NameHash, std::equal_to<>>;
  using Ids = std::set<std::string, std::less<>>;

  struct WorkloadBuffers {
    uint64_t generation = 0;  // of the registration with published names
    ByText<std::shared_ptr<Buffer>> by_name;
    Ids ids;  // over all registrations
  };

  void FreeName(const Buffer& buffer);

  std::map<std::string, RegisteredBuffer, std::less<>> by_id_;
  ByText<WorkloadBuffers> by_workload_;
  std::map<std::string, TimePoint> removals_;  // deadline by id
  uint64_t bytes_ = 0;
};

}  // namespace gantry::registry
