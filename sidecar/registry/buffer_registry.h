// Every registered buffer, over reference-counted allocations. An allocation is mapped once, shared
// by all buffers inside it, and unmapped with the last of them. Registration is all or nothing.
// Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/clock.h"
#include "lib/base/mutex.h"
#include "lib/base/result.h"
#include "lib/wire/registration_request.h"
#include "lib/wire/transfer_request.h"
#include "sidecar/memory/memory_mapper.h"
#include "sidecar/registry/buffer.h"
#include "sidecar/registry/peer_release.h"
#include "sidecar/registry/workload_table.h"

namespace gantry::registry {

class AllocationTable;
class BufferIndex;
struct RegisteredBuffer;
struct ResolvedRequest;

// Tells peers that buffers are withdrawn or replaced, and waits for them. The registry owns the
// interface; the peer API implements it.
class RevocationSink {
 public:
  virtual ~RevocationSink() = default;
  // Asks peers to stop using these buffers and to unmap them, and waits until `deadline`. Returns,
  // parallel to the buffers, the outcome at each peer that knew them. It may be called again for
  // the same buffers: outcomes of earlier calls are kept.
  virtual std::vector<std::vector<PeerRelease>> Revoke(
      const std::vector<std::shared_ptr<const Buffer>>& buffers, TimePoint deadline) = 0;
};

struct RegistryLimits {
  size_t buffers_max = 100'000;
  size_t buffers_per_request_max = 16'384;
  size_t allocations_per_request_max = 65'536;
  size_t pieces_per_buffer_max = 65'536;
  size_t pieces_per_request_max = 262'144;
  size_t nonces_per_request_max = 524'288;
};

struct RegistryTotals {
  size_t buffers = 0;
  size_t allocations = 0;         // mapped now
  uint64_t registered_bytes = 0;  // sum of the buffers' lengths
  uint64_t mapped_bytes = 0;      // sum of the sizes of the mapped allocations
};

class BufferRegistry {
 public:
  // Both references outlive the registry. REQUIRES at destruction that no buffer is in use.
  BufferRegistry(RegistryLimits limits, memory::MemoryMapper& mapper, WorkloadTable& workloads);
  ~BufferRegistry();

  // Call once, before the first registration; null: there are no peers to tell.
  void SetRevocationSink(RevocationSink* sink);
  // Call once, before the first registration. The registrar outlives the registry; null: no RDMA.
  void SetNicRegistrar(memory::NicRegistrar* registrar);

  // Checks everything, maps new allocations, then publishes all buffers at once, in the order of
  // the request. A name that exists with the same specification returns the existing buffer. A
  // different specification is kConflict. A suspended buffer accepts other memory of the same
  // length: it becomes active and keeps its id and generation. Errors name the field as a JSON
  // pointer into the request. A new buffer with nonces starts suspended, since it still contains
  // them: call Resume once they are gone.
  Result<std::vector<std::shared_ptr<Buffer>>> Register(const wire::RegistrationRequest& request)
      EXCLUDES(mutex_);

  // Unpublishes the buffer and stops new uses. Then tells peers, waits for running uses, and
  // releases, in this order (invariant 5). kDeadlineExceeded names what still uses the buffer. It
  // then stays draining: call again. kDeviceError: the buffer is gone, but RDMA devices kept some
  // of its memory. Works after the owner has died. `peers`, set also on failure, lists the peers
  // that knew the buffer when the call began.
  Status Remove(std::string_view id, TimePoint deadline, std::vector<PeerRelease>* peers = nullptr)
      EXCLUDES(mutex_);
  // Removes all buffers of one registration of a workload (generation 0: of all). Continues past
  // failures and returns the first.
  Status RemoveAll(std::string_view workload, uint64_t workload_generation, TimePoint deadline)
      EXCLUDES(mutex_);
  // Continues the removals that missed their deadline; called periodically.
  Status FinishRemovals(TimePoint deadline) EXCLUDES(mutex_);
  // Unmaps everywhere and refuses transfers until Resume maps again. Both are idempotent.
  // SuspendAll tells peers of all the buffers at once. It continues past failures and returns the
  // first. kDeviceError and `peers` as for Remove.
  Status Suspend(std::string_view id, TimePoint deadline) EXCLUDES(mutex_);
  Status SuspendAll(const std::vector<std::shared_ptr<Buffer>>& buffers, TimePoint deadline,
                    std::vector<PeerRelease>* peers = nullptr) EXCLUDES(mutex_);
  // kConflict after ReleaseMemory: Register supplies new memory.
  Status Resume(std::string_view id) EXCLUDES(mutex_);
  // Closes the descriptors and handles of those buffers that are suspended, so that the owner's
  // free returns the memory.
  void ReleaseMemory(const std::vector<std::shared_ptr<Buffer>>& buffers) EXCLUDES(mutex_);
  // Ends all current and future waits for uses: Remove, RemoveAll and Suspend return as at their
  // deadline. Waits inside the sink do not end. Idempotent.
  void Close() EXCLUDES(mutex_);

  // ById also finds a draining buffer; ByName only one that is active or suspended. An unknown id
  // is kNotFound, an unknown name is kUnregistered.
  Result<std::shared_ptr<Buffer>> ById(std::string_view id) const EXCLUDES(mutex_);
  // kStaleGeneration when the workload is registered under another generation (0: any matches).
  // Returns success for an unknown workload: the lookup of its buffer reports that.
  Status CheckLife(std::string_view workload, uint64_t generation) const;
  Result<std::shared_ptr<Buffer>> ByName(std::string_view workload, std::string_view name) const
      EXCLUDES(mutex_);
  // Acquires the buffer if it is active and of this generation (0: any). `user` as for
  // Buffer::Acquire.
  Result<Buffer::Use> Acquire(std::string_view workload, std::string_view name, uint64_t generation,
                              std::string_view user = {}) const EXCLUDES(mutex_);
  // Looks up many buffers under one lock; an unknown name gives null. The next function acquires
  // each.
  std::vector<std::shared_ptr<Buffer>> AllByName(
      std::string_view workload, std::span<const wire::BufferReference> references) const
      EXCLUDES(mutex_);
  Result<Buffer::Use> Acquire(std::shared_ptr<Buffer> buffer, std::string_view workload,
                              std::string_view name, uint64_t generation,
                              std::string_view user) const EXCLUDES(mutex_);
  // Returns buffers in the order of their ids, at most `limit` of those after `cursor`. An empty
  // `workload` means all workloads.
  std::vector<std::shared_ptr<Buffer>> List(std::string_view workload, std::string_view cursor,
                                            size_t limit) const EXCLUDES(mutex_);
  RegistryTotals Totals() const EXCLUDES(mutex_);

 private:
  using Buffers = std::vector<std::shared_ptr<Buffer>>;

  // A buffer that already has the requested name; null where the name is free.
  struct Existing {
    std::shared_ptr<Buffer> buffer;
    bool is_replaced = false;  // it is suspended and takes the new memory
    bool IsAnswer() const { return buffer != nullptr && !is_replaced; }
  };

  // Parallel to the request's buffers. Fails when a name is taken by another specification, when
  // the limit is reached, or when the workload has ended meanwhile.
  Result<std::vector<Existing>> FindExisting(const wire::RegistrationRequest& request,
                                             const ResolvedRequest& resolved) const
      REQUIRES(mutex_);
  // Maps the allocations of one buffer. Id and generation come from `replaced` unless it is null.
  Result<RegisteredBuffer> MakeBuffer(const wire::RegistrationRequest& request,
                                      const ResolvedRequest& resolved, size_t buffer,
                                      const Buffer* replaced);
  // `seen` is the result of FindExisting before `made` was built.
  Result<Buffers> Publish(const wire::RegistrationRequest& request, const ResolvedRequest& resolved,
                          const std::vector<Existing>& seen, std::vector<RegisteredBuffer> made)
      EXCLUDES(mutex_);
  // Registers on the RDMA devices, if there are any. Memory that RDMA cannot reach is no failure.
  Result<Buffer::NicRegistration> RegisterOnNics(const memory::PieceMap& pieces,
                                                 const Buffer::Allocations& mapped,
                                                 const wire::Access& access) const;
  // REQUIRES that all of these are draining. Continues past failures and returns the first.
  Status FinishRemoval(const Buffers& buffers, TimePoint deadline,
                       std::vector<PeerRelease>* peers = nullptr) EXCLUDES(mutex_);
  // Returns, parallel to the buffers, the names of peers that may still use them.
  std::vector<std::vector<std::string>> RevokeAtPeers(const Buffers& buffers, TimePoint deadline,
                                                      std::vector<PeerRelease>* peers) const;
  std::string NextId();

  const RegistryLimits limits_;
  memory::MemoryMapper& mapper_;
  WorkloadTable& workloads_;
  RevocationSink* sink_ = nullptr;
  memory::NicRegistrar* nics_ = nullptr;
  const std::string id_prefix_;  // random per sidecar: ids of an earlier one match nothing
  std::atomic<uint64_t> next_id_{1};
  const std::unique_ptr<AllocationTable> allocations_;

  mutable Mutex mutex_;
  std::unique_ptr<BufferIndex> index_ GUARDED_BY(mutex_);
  bool closed_ GUARDED_BY(mutex_) = false;
};

}  // namespace gantry::registry
