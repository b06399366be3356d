// This process as a workload of one sidecar: the lease, its arenas, buffers and transfers. Open
// registers it, Close ends it; in between every function may be called from every thread.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "client/include/gantry.h"
#include "client/include/gantry_messages.h"
#include "client/memory/arena.h"
#include "client/memory/gpu_resolver.h"
#include "client/session/client_json.h"
#include "client/session/handoff_lease.h"
#include "client/session/silence.h"
#include "client/session/unix_http.h"
#include "lib/base/clock.h"
#include "lib/base/mutex.h"
#include "lib/base/result.h"

namespace gantry::client {

// Keeps its arenas alive: memory is unmapped only after the last buffer in it is gone. Memory of
// GPUs is not kept, as nobody but its owner can; it stays exported until the buffer is
// unregistered.
struct RegisteredBuffer {
  std::string name;
  std::string id;
  std::string generation;
  uint64_t bytes = 0;
  std::vector<std::shared_ptr<Arena>> arenas;
  std::atomic<bool> registered{true};
  bool on_gpu = false;  // constant: whether there are or were pieces on a GPU
  std::vector<const GpuAllocation*> gpu_allocations;  // to be compared alone; the session's lock
  BufferRequest again;  // constant: without pieces, of a buffer on a GPU; resumes it after a sleep
  Mutex mutex;
  std::vector<GpuPiece> gpu_pieces GUARDED_BY(mutex);
  bool asleep GUARDED_BY(mutex) = false;  // its memory is to be registered again before it is used
};
using BufferPointer = std::shared_ptr<RegisteredBuffer>;
// The buffer's memory on GPUs is of these from now on. REQUIRES that nobody else sees
// buffer->gpu_allocations.
void TakeGpuPieces(const std::vector<ResolvedPiece>& pieces, RegisteredBuffer* buffer);

// A submitted transfer and the last that is known of it.
class TransferRecord {
 public:
  explicit TransferRecord(std::string id) : id_(std::move(id)) {}
  const std::string& id() const { return id_; }
  TransferAnswer last() const;
  gantry_transfer_status status() const;  // of last()
  bool is_over() const;                   // as last() says
  void Learn(TransferAnswer answer);      // an outcome is never replaced

 private:
  const std::string id_;
  mutable Mutex mutex_;
  TransferAnswer last_ GUARDED_BY(mutex_);
};

// A view that was made.
class ViewRecord {
 public:
  explicit ViewRecord(ViewAnswer answer) : answer_(std::move(answer)) {}
  const std::string& id() const { return answer_.id; }
  const ViewAnswer& answer() const { return answer_; }
  std::atomic<bool>& deleted() { return deleted_; }

  // The buffers of the pairs' local sides that are on a GPU, nothing for others: by name they would
  // be looked up for each transfer. The session's, under its lock.
  struct GpuBuffers {
    uint64_t epoch = 0;  // of the session's buffers on GPUs, from which these are
    std::vector<std::weak_ptr<RegisteredBuffer>> of_pairs;
    // Of group 0, so many that every allocation of all is one of theirs: layers of a cache share
    // it.
    std::vector<std::weak_ptr<RegisteredBuffer>> for_group_0;
  };
  GpuBuffers& gpu_buffers() { return gpu_buffers_; }

 private:
  const ViewAnswer answer_;
  std::atomic<bool> deleted_{false};
  GpuBuffers gpu_buffers_;
};

// What the handles of a gantry_transfer_spec stand for.
struct SubmitHandles {
  std::vector<BufferPointer> local;  // of spec.local
  std::shared_ptr<ViewRecord> view;  // null: none
  BufferPointer fence;               // null: none
};

class WorkloadSession {
 public:
  struct Options {
    std::string path;  // run directory or API socket of the sidecar
    std::string workload;
    std::string engine_id;
    std::string handoff_socket;  // empty: beside the API socket
    milliseconds timeout{10'000};
  };

  static Result<std::shared_ptr<WorkloadSession>> Open(Options options);

  // Everything below fails with kCancelled afterwards. Idempotent. `longest`: to wait for the
  // sidecar; with 0 it is not asked, and sees the hand-off socket close.
  Status Close(milliseconds longest);
  Status Close() { return Close(options_.timeout); }
  // For the last time: a sidecar that stands still is not asked.
  Status Drop() { return Close(silence_.IsOn() ? milliseconds(0) : options_.timeout); }
  Status Check();

  Result<std::shared_ptr<Arena>> AddArena(int fd, uint64_t bytes, void* address);
  Status CloseArena(Arena& arena, uint64_t drain_ms);
  // As CloseArena and Unregister, for the last time: what a sidecar that stands still does not hear
  // of it is told when it answers again.
  Status DropArena(Arena& arena);
  Status Drop(const BufferPointer& buffer);
  // In order, for one of arenas and for one of a GPU's allocations. Registers nothing.
  Result<std::vector<gantry_extent>> Locate(const void* address, uint64_t bytes) const;

  enum class Trust { kBelieve, kVerify };
  Result<std::vector<BufferPointer>> Register(std::span<const gantry_buffer_spec> specs,
                                              Trust trust);
  // `report`: the sidecar's answer, also when it is a problem; unchanged when it was not asked.
  Status Unregister(const BufferPointer& buffer, uint64_t drain_ms, std::string* report = nullptr);
  // The sidecar keeps the arena's descriptor no longer; nothing happens where it does not.
  Status ReleaseFd(Arena& arena);
  // Keeps nothing of a buffer here any more, whatever becomes of it at the sidecar.
  void Forget(const BufferPointer& buffer) EXCLUDES(mutex_);
  Status Suspend(const std::vector<std::string>* names, uint64_t drain_ms);
  Status Resume(const std::vector<std::string>* names);

  Result<std::shared_ptr<ViewRecord>> MakeView(const gantry_view_spec& spec);
  Status DeleteView(ViewRecord& view);
  Status Drop(ViewRecord& view);

  Result<std::shared_ptr<TransferRecord>> Submit(const gantry_transfer_spec& spec,
                                                 const SubmitHandles& handles, uint64_t wait_ms);
  // Returns when the transfer is over or the time is.
  Status Await(TransferRecord& transfer, uint64_t timeout_ms);
  Status Cancel(TransferRecord& transfer, uint64_t timeout_ms);

  // Before blocks are promised to peers: whether the memory of the buffers is what was registered.
  // A buffer whose memory is not is suspended: peers read memory there that nobody writes to.
  Status CheckHeld(const gantry_hold_spec& spec) EXCLUDES(mutex_);

  Result<std::string> Request(std::string_view method, std::string_view target,
                              std::string_view body, uint64_t wait_ms);

  // Waits are for as long as anybody can mean and short enough for every clock.
  static milliseconds Bounded(uint64_t wait_ms);

  const std::string& workload() const { return options_.workload; }
  const std::string& generation() const { return lease_answer_.generation; }
  pid_t owner() const { return owner_; }

 private:
  WorkloadSession(Options options, std::string api_socket);

  // How long the end of a buffer waits for transfers that use it.
  static constexpr uint64_t kDropDrainMs = 1000;

  Status Attach();
  // Tells the sidecar what ended while it stood still.
  Status TellUnheard();
  std::string BufferTarget(const RegisteredBuffer& buffer, uint64_t drain_ms) const;
  std::string ViewTarget(const ViewRecord& view) const;
  std::vector<BufferPointer> BuffersIn(const Arena& arena) const EXCLUDES(mutex_);
  // In the name of the lease. `raw`: the reply's body, also when it is a problem.
  Result<std::string> Ask(HttpRequest request, std::string* raw = nullptr);
  Result<std::string> Post(std::string_view target, std::string_view body, uint64_t wait_ms);
  std::string TransferTarget(const TransferRecord& transfer, uint64_t wait_ms) const;
  // What answers every call after Close.
  static Error Closed() { return {ErrorCode::kCancelled, "the client is closed"}; }
  Result<std::vector<ResolvedPiece>> Resolve(const void* address, uint64_t bytes);
  Result<BufferRequest> ResolveSpec(const gantry_buffer_spec& spec, size_t index);
  // Adds the pieces of what is asked. Errors name the piece below `field`.
  Status ResolvePieces(BufferRequest* request, const std::string& field);
  Result<std::vector<BufferPointer>> RegisterAll(std::span<const gantry_buffer_spec> specs,
                                                 Trust trust);
  // Registers with nonces, restores the bytes, and only then lets transfers use the buffers.
  Result<std::vector<BufferPointer>> RegisterVerified(std::vector<BufferRequest> requests);
  Result<std::vector<BufferPointer>> PostBuffers(std::vector<BufferRequest> requests);
  Result<std::vector<BufferPointer>> Keep(std::vector<BufferRequest> requests,
                                          const std::vector<BufferAnswer>& answers);
  // Takes the descriptors back that no registered buffer needs any more.
  void ReleaseUnusedGpuMemory();
  void ReleaseFds(const std::vector<std::string>& tokens);
  Status Suspension(std::string_view verb, const std::vector<std::string>* names,
                    std::optional<uint64_t> drain_ms, std::string_view memory = {});
  std::vector<BufferPointer> GpuBuffersNamed(const std::vector<std::string>* names) const
      EXCLUDES(mutex_);
  // The sidecar gets what is at the addresses of these now, and they are active. All or nothing.
  Status WakeUp(const std::vector<BufferPointer>& buffers) EXCLUDES(mutex_);
  // Whether the memory of a buffer on a GPU is still what was registered.
  // `last`, where it is given: the allocation that was looked at last, which is not looked at
  // again.
  static Status CheckGpuMemory(RegisteredBuffer& buffer, std::string field,
                               std::shared_ptr<const GpuAllocation>* last = nullptr);
  // The same of all that a transfer by a view moves.
  Status CheckGpuMemoryOf(ViewRecord& view, const gantry_transfer_spec& spec);
  const ViewRecord::GpuBuffers& GpuBuffersOf(ViewRecord& view) REQUIRES(mutex_);
  // That have every allocation on GPUs which the transfer touches here.
  std::vector<BufferPointer> GpuBuffersToCheck(ViewRecord& view, const gantry_transfer_spec& spec)
      REQUIRES(mutex_);

  const Options options_;
  const pid_t owner_;
  UnixHttp http_;
  Silence silence_;
  LeaseAnswer lease_answer_;             // constant after Open
  std::unique_ptr<HandoffLease> lease_;  // likewise
  std::atomic<bool> closed_{false};
  std::atomic<uint64_t> transfers_made_{0};
  std::atomic<uint64_t> views_made_{0};
  ArenaTable arenas_;
  GpuResolver gpu_;
  mutable Mutex mutex_;
  std::set<BufferPointer> buffers_ GUARDED_BY(mutex_);
  std::map<std::string, BufferPointer, std::less<>> gpu_buffers_ GUARDED_BY(mutex_);  // by name
  uint64_t gpu_buffers_epoch_ GUARDED_BY(mutex_) = 1;  // another one after each change of them
};

}  // namespace gantry::client
