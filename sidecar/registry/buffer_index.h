// Where the registry looks buffers up: by id all that exist, by name those that are published.
// Used by one thread at a time: the registry's lock guards it.
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

// A buffer and the records that map its allocations again after it was suspended; none where its
// memory was released.
struct RegisteredBuffer {
  std::shared_ptr<Buffer> buffer;
  std::vector<std::shared_ptr<AllocationRecord>> allocations;
};

class BufferIndex {
 public:
  // REQUIRES that the name is free in this registration of the workload. Names of an earlier
  // registration are unpublished.
  void Publish(RegisteredBuffer registered);
  // In place of the buffer with this id, which it answers for the caller to drop outside of its
  // lock. REQUIRES that there is one, with the same workload, name and length.
  RegisteredBuffer Replace(RegisteredBuffer registered);
  // The records of the buffer, likewise to be dropped; it has none from then on.
  std::vector<std::shared_ptr<AllocationRecord>> TakeAllocations(std::string_view id);
  // Takes the name away; the buffer is still found by id, and its removal has time until
  // `deadline`: the latest of those that were given.
  void Unpublish(const Buffer& buffer, TimePoint deadline);
  // The entry, for the caller to drop outside of its lock; empty when there is none.
  RegisteredBuffer Erase(std::string_view id);

  const RegisteredBuffer* ById(std::string_view id) const;
  // Null when there is none. `workload_generation` 0: any.
  std::shared_ptr<Buffer> ByName(std::string_view workload, uint64_t workload_generation,
                                 std::string_view name) const;
  // Of the registration that is published; null when there is none. Until the index changes.
  const std::shared_ptr<Buffer>* Named(std::string_view workload, std::string_view name) const;
  // In the order of ids; an empty workload means all.
  std::vector<std::shared_ptr<Buffer>> List(std::string_view workload, std::string_view cursor,
                                            size_t limit) const;
  // Those whose removal has no time left.
  std::vector<std::shared_ptr<Buffer>> Overdue(TimePoint now) const;

  size_t size() const { return by_id_.size(); }
  uint64_t bytes() const { return bytes_; }

 private:
  struct NameHash {
    using is_transparent = void;  // looks up by string_view
    size_t operator()(std::string_view name) const { return std::hash<std::string_view>()(name); }
  };
  template <typename Value>
  using ByText = std::unordered_map<std::string, Value, NameHash, std::equal_to<>>;
  using Ids = std::set<std::string, std::less<>>;

  struct WorkloadBuffers {
    uint64_t generation = 0;  // of the registration whose names are published
    ByText<std::shared_ptr<Buffer>> by_name;
    Ids ids;  // of all registrations
  };

  void FreeName(const Buffer& buffer);

  std::map<std::string, RegisteredBuffer, std::less<>> by_id_;
  ByText<WorkloadBuffers> by_workload_;
  std::map<std::string, TimePoint> removals_;  // id -> until when
  uint64_t bytes_ = 0;
};

}  // namespace gantry::registry
