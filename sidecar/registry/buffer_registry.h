// Every registered buffer, over allocations that are counted: mapped once, shared by all buffers
// inside of them, unmapped with the last one. Registration is all or nothing. Thread-safe.
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

// Tells others that buffers go away or are replaced, and waits for them. Owned here, implemented
// by the peer API.
class RevocationSink {
 public:
  virtual ~RevocationSink() = default;
  // Peers stop using all of these buffers and unmap them; returns, parallel to the buffers, what
  // became of them at the peers that knew them. May be called again for the same buffers: what
  // peers were told stays as it was.
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
  // Both references outlive the registry, and all buffers are unused when it goes.
  BufferRegistry(RegistryLimits limits, memory::MemoryMapper& mapper, WorkloadTable& workloads);
  ~BufferRegistry();

  // Set once, before the first registration; null: there are no peers to tell.
  void SetRevocationSink(RevocationSink* sink);
  // Likewise; outlives the registry. Null: no RDMA device is used.
  void SetNicRegistrar(memory::NicRegistrar* registrar);

  // Checks everything, maps what is new, then publishes all buffers at once, in the order of the
  // request. A name that exists with the same specification answers the existing buffer; with
  // another one it is kConflict. A suspended buffer takes other memory of the same length, and is
  // active then, under its id and generation. Errors name the field as a JSON pointer into the
  // request. A new buffer with nonces begins suspended, as they are still in it: Resume it when
  // they are gone.
  Result<std::vector<std::shared_ptr<Buffer>>> Register(const wire::RegistrationRequest& request)
      EXCLUDES(mutex_);

  // Unpublishes and stops new uses, tells peers, waits for the running uses, then releases: in
  // this order (invariant 5). At the deadline it returns kDeadlineExceeded and says who still uses
  // the buffer, which stays draining: call again. kDeviceError: it is gone, but RDMA devices have
  // not let go of all its memory. Works after the owner died. `peers`, also of a failure: those
  // that knew the buffer when this call began.
  Status Remove(std::string_view id, TimePoint deadline, std::vector<PeerRelease>* peers = nullptr)
      EXCLUDES(mutex_);
  // All buffers of one registration of a workload (0: of all its registrations); goes on past
  // failures and returns the first.
  Status RemoveAll(std::string_view workload, uint64_t workload_generation, TimePoint deadline)
      EXCLUDES(mutex_);
  // Goes on with the removals that missed their own deadline; for a caller with a clock.
  Status FinishRemovals(TimePoint deadline) EXCLUDES(mutex_);
  // Unmaps everywhere and refuses transfers until Resume maps again. Both are idempotent. Peers
  // are told of all the buffers at once; goes on past failures and returns the first. kDeviceError
  // and `peers` as for Remove.
  Status Suspend(std::string_view id, TimePoint deadline) EXCLUDES(mutex_);
  Status SuspendAll(const std::vector<std::shared_ptr<Buffer>>& buffers, TimePoint deadline,
                    std::vector<PeerRelease>* peers = nullptr) EXCLUDES(mutex_);
  // kConflict after ReleaseMemory.
  Status Resume(std::string_view id) EXCLUDES(mutex_);
  // Of those that are suspended: lets go of their descriptors and handles, so that the owner's free
  // gives the memory back. Register brings other memory.
  void ReleaseMemory(const std::vector<std::shared_ptr<Buffer>>& buffers) EXCLUDES(mutex_);
  // Ends all waits for uses, and those to come: Remove, RemoveAll and Suspend answer as at their
  // deadline. The sink has to end its own. Idempotent.
  void Close() EXCLUDES(mutex_);

  // By id also a draining buffer is found, by name only one that is active or suspended.
  // kNotFound for an id, kUnregistered for a name, of which there is none.
  Result<std::shared_ptr<Buffer>> ById(std::string_view id) const EXCLUDES(mutex_);
  // kStaleGeneration when another life of the workload is registered than that of `generation`,
  // where 0 stands for any. One that is not there has no buffers, which is what to say then.
  Status CheckLife(std::string_view workload, uint64_t generation) const;
  Result<std::shared_ptr<Buffer>> ByName(std::string_view workload, std::string_view name) const
      EXCLUDES(mutex_);
  // The buffer in use, if it is active and of this generation (0: any). `user` as for
  // Buffer::Acquire.
  Result<Buffer::Use> Acquire(std::string_view workload, std::string_view name, uint64_t generation,
                              std::string_view user = {}) const EXCLUDES(mutex_);
  // Of many: looked up at once, null where there is none of that name; then each is acquired.
  std::vector<std::shared_ptr<Buffer>> AllByName(
      std::string_view workload, std::span<const wire::BufferReference> references) const
      EXCLUDES(mutex_);
  Result<Buffer::Use> Acquire(std::shared_ptr<Buffer> buffer, std::string_view workload,
                              std::string_view name, uint64_t generation,
                              std::string_view user) const EXCLUDES(mutex_);
  // In the order of ids, those of one workload or (empty) of all; at most `limit` after `cursor`.
  std::vector<std::shared_ptr<Buffer>> List(std::string_view workload, std::string_view cursor,
                                            size_t limit) const EXCLUDES(mutex_);
  RegistryTotals Totals() const EXCLUDES(mutex_);

 private:
  using Buffers = std::vector<std::shared_ptr<Buffer>>;

  // A buffer of the name that is asked for; null where the name is free.
  struct Existing {
    std::shared_ptr<Buffer> buffer;
    bool is_replaced = false;  // it is asleep and gets other memory
    bool IsAnswer() const { return buffer != nullptr && !is_replaced; }
  };

  // Parallel to the request's buffers. Fails when a name is in use for something else, when there
  // is no room, or when the workload has ended meanwhile.
  Result<std::vector<Existing>> FindExisting(const wire::RegistrationRequest& request,
                                             const ResolvedRequest& resolved) const
      REQUIRES(mutex_);
  // Maps what the buffer needs. Id and generation are those of `replaced`, if it is not null.
  Result<RegisteredBuffer> MakeBuffer(const wire::RegistrationRequest& request,
                                      const ResolvedRequest& resolved, size_t buffer,
                                      const Buffer* replaced);
  // `seen`: what existed when they were made.
  Result<Buffers> Publish(const wire::RegistrationRequest& request, const ResolvedRequest& resolved,
                          const std::vector<Existing>& seen, std::vector<RegisteredBuffer> made)
      EXCLUDES(mutex_);
  // On the devices, if there are any. Memory that has no way there is no failure.
  Result<Buffer::OnNics> RegisterOnNics(const memory::PieceMap& pieces,
                                        const Buffer::Allocations& mapped,
                                        const wire::Access& access) const;
  // All of these are draining. Goes on past failures and returns the first.
  Status FinishRemoval(const Buffers& buffers, TimePoint deadline,
                       std::vector<PeerRelease>* peers = nullptr) EXCLUDES(mutex_);
  // Parallel to the buffers: the names of those that may still use it.
  std::vector<std::vector<std::string>> TellPeers(const Buffers& buffers, TimePoint deadline,
                                                  std::vector<PeerRelease>* peers) const;
  std::string NextId();

  const RegistryLimits limits_;
  memory::MemoryMapper& mapper_;
  WorkloadTable& workloads_;
  RevocationSink* sink_ = nullptr;
  memory::NicRegistrar* nics_ = nullptr;
  const std::string id_prefix_;  // an id of an earlier sidecar names nothing here
  std::atomic<uint64_t> next_id_{1};
  const std::unique_ptr<AllocationTable> allocations_;

  mutable Mutex mutex_;
  std::unique_ptr<BufferIndex> index_ GUARDED_BY(mutex_);
  bool closed_ GUARDED_BY(mutex_) = false;
};

}  // namespace gantry::registry
