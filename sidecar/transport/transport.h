// One way of moving bytes. At admission any thread asks it about a transfer. Start takes a checked
// plan; the engine then calls Poll until the operation is finished. Stop makes it issue nothing
// more. The driver alone calls Start and Poll, and uses operations. All other calls are
// thread-safe.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/result.h"
#include "sidecar/plan/move_plan.h"
#include "sidecar/worker/channel/gpu_copy_reason.h"

namespace gantry::transport {

struct Progress {
  uint64_t bytes = 0;         // confirmed as moved
  uint64_t chunks = 0;        // finished
  uint64_t chunks_total = 0;  // known from the start
  uint64_t chunks_retried = 0;
  // The part of `bytes` that went between GPUs of this node and the network through host memory.
  uint64_t staged_bytes = 0;
  uint64_t copy_nanoseconds = 0;  // summed over workers
  int workers = 0;                // number that took part
  // GPU memory only: jobs by each means, and why the last job used its means.
  uint64_t gpu_jobs_by_engine = 0;
  uint64_t gpu_jobs_by_kernel = 0;
  GpuCopyReason gpu_reason = GpuCopyReason::kWithHost;
  std::array<uint64_t, kGpuCopyReasons> gpu_jobs_by_reason = {};
  std::optional<TimePoint> first_posted;
  // True when the error was counted in the metrics already: the transfer's end does not count it
  // again.
  bool error_is_counted = false;
};

// One transfer that a transport carries out.
class Operation {
 public:
  virtual ~Operation() = default;  // REQUIRES finished()
  // Issues nothing more. Copies in flight complete by themselves.
  virtual void Stop() = 0;
  // Forcibly ends what is in flight, where the transport can (by killing a copy worker).
  virtual void Abort() = 0;
  // True when no byte can move any more: all moved, failed, or stopped and drained.
  virtual bool finished() const = 0;
  // Set once something has failed; the operation then stops itself.
  virtual const std::optional<Error>& error() const = 0;
  virtual const Progress& progress() const = 0;
  // Returns the plan's items that were not moved completely. REQUIRES finished().
  virtual std::vector<uint32_t> UnfinishedItems() const = 0;
};

// The properties of a transfer's local buffers that decide its path.
struct LocalSide {
  const std::vector<std::shared_ptr<const memory::MappedAllocation>>& allocations;
  // The buffers' registrations on RDMA devices; one for each buffer when all are registered.
  const std::vector<std::shared_ptr<const memory::NicMemory>>& nic_memory;
  const std::optional<Error>& why_not_on_nics;  // set when one is not registered
};

// The properties of a transport that never change.
struct TransportTraits {
  wire::Path path = wire::Path::kShm;
  // True when remote buffers are addressed by name and not mapped. A plan then has one flat piece
  // [0, length) per remote buffer, with RemoteAllocation::target as its allocation.
  bool addresses_buffers = false;
  // True when the peer's sidecar need not support this path for host memory that is mapped here.
  bool host_memory_needs_no_peer = false;
};

// The result of one poll, or of a round of polls.
struct PollOutcome {
  bool progressed = false;
  // True while devices copy for only microseconds. Polling again at once then saves a sleep and a
  // wake-up, and takes no processor from copies.
  bool should_spin = false;
  // How long the driver may ignore completions of copy workers, because they have enough queued. It
  // is woken when anything else happens.
  nanoseconds poll_interval = nanoseconds::max();

  void Add(const PollOutcome& other) {
    progressed |= other.progressed;
    should_spin |= other.should_spin;
    poll_interval = std::min(poll_interval, other.poll_interval);
  }
};

class Transport {
 public:
  virtual ~Transport() = default;
  virtual TransportTraits traits() const = 0;
  // Returns why the transport is unusable on this machine. Called at the start, for /v1/status, and
  // at each admission: must be fast.
  virtual Status Probe() = 0;
  // Returns why the transport cannot carry the transfer for a reason other than a pair of
  // allocations. Called before CanReach.
  virtual Status CanCarry(const LocalSide& local,
                          const std::vector<RemoteAllocation>& remote) const = 0;
  // Returns why this sidecar cannot copy between these two allocations. The answer is the same for
  // all local allocations of one kind, seal and GPU.
  virtual Status CanReach(const memory::MappedAllocation& local,
                          const RemoteAllocation& remote) const = 0;
  // Higher `priority` goes first; equal ones share. Poll returns `token`.
  virtual std::unique_ptr<Operation> Start(std::shared_ptr<const MovePlan> plan, int priority,
                                           uint64_t token) = 0;
  // Takes completions and issues more work. Appends the token of each operation once when it
  // becomes finished. Appends it also when the operation fails before it has drained.
  virtual PollOutcome Poll(std::vector<uint64_t>* ready_tokens) = 0;

  wire::Path path() const { return traits().path; }
};

}  // namespace gantry::transport
