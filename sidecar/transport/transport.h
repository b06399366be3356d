// A way of moving bytes. Life of a transfer: CanCarry and CanReach are asked at admission by any
// thread; Start hands over a checked plan; the engine then calls Poll until the operation is
// finished; Stop asks it to issue nothing more. All but Probe and these two belong to the engine's
// driver.
#pragma once

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
#include "sidecar/plan/row_limits.h"
#include "sidecar/worker/channel/gpu_copy_reason.h"

namespace gantry::transport {

struct Progress {
  uint64_t bytes = 0;         // moved for certain
  uint64_t chunks = 0;        // finished
  uint64_t chunks_total = 0;  // known from the start
  uint64_t chunks_retried = 0;
  uint64_t staged_bytes = 0;  // of `bytes`: of GPUs here, through the host's memory to the network
  uint64_t copy_nanoseconds = 0;  // summed over workers
  int workers = 0;                // that took part
  // Of GPU memory: how many jobs were copied by each, and why the last one so.
  uint64_t gpu_jobs_by_engine = 0;
  uint64_t gpu_jobs_by_kernel = 0;
  GpuCopyReason gpu_reason = GpuCopyReason::kWithHost;
  std::array<uint64_t, kGpuCopyReasons> gpu_jobs_by_reason = {};
  std::optional<TimePoint> first_posted;
};

// One transfer in the hands of a transport.
class Operation {
 public:
  virtual ~Operation() = default;  // REQUIRES finished()
  // Issues nothing more. What is in flight ends by itself.
  virtual void Stop() = 0;
  // Ends what is in flight by force, where it can (a copy worker is killed).
  virtual void Abort() = 0;
  // True when no byte can move any more: all moved, failed, or stopped and drained.
  virtual bool finished() const = 0;
  // Set once something failed; the operation then stops itself.
  virtual const std::optional<Error>& error() const = 0;
  // It is in the metrics since it came; the transfer's end does not count it again.
  virtual bool error_is_counted() const { return false; }
  virtual const Progress& progress() const = 0;
  // Items of the plan that were not moved whole. REQUIRES finished().
  virtual std::vector<uint32_t> UnfinishedItems() const = 0;
};

// The local buffers of a transfer, as far as they matter to its path.
struct LocalSide {
  const std::vector<std::shared_ptr<const memory::MappedAllocation>>& allocations;
  // What RDMA devices have of the buffers; as many as there are when they have all.
  const std::vector<std::shared_ptr<const memory::NicMemory>>& on_nics;
  const std::optional<Error>& why_not_on_nics;  // of one that they do not have
};

class Transport {
 public:
  virtual ~Transport() = default;
  virtual wire::Path path() const = 0;
  // Usable on this machine at all? The reason reaches /v1/status, once, from the start.
  virtual Status Probe() = 0;
  // True: the other side's buffers are named and not mapped, so that a plan for this transport has
  // one flat piece [0, length) for each remote buffer, with RemoteAllocation::target as its
  // allocation.
  virtual bool AddressesBuffers() const { return false; }
  // Whether this sidecar can execute between these two; the error says why not. The same for all
  // local allocations of one kind and GPU.
  virtual Status CanReach(const memory::MappedAllocation& local,
                          const RemoteAllocation& remote) const = 0;
  // Whether it can carry between these as far as that is no matter of pairs of allocations; the
  // error says why not. Asked before CanReach.
  virtual Status CanCarry(const LocalSide& /*local*/,
                          const std::vector<RemoteAllocation>& /*remote*/) const {
    return {};
  }
  // Whether the other side's sidecar has to have this path, too.
  virtual bool NeedsPeer(const RemoteAllocation& /*remote*/) const { return true; }
  // How the same blocks of many buffers are planned between these, which it can execute between.
  virtual RowLimits RowsOf(
      const std::vector<std::shared_ptr<const memory::MappedAllocation>>& /*local*/,
      const std::vector<RemoteAllocation>& /*remote*/) const {
    return {};
  }
  // A plan for so many blocks or ranges is being made: whoever carries the bytes may wake up
  // meanwhile. Any thread.
  virtual void Expect(size_t /*named*/) {}
  // A request has come that asks for a transfer, of which nothing is known yet: whoever carried the
  // bytes of the last ones may wake up while it is read. Any thread.
  virtual void Foresee() {}
  // `priority`: higher goes first, equal ones share. `token` comes back from Poll.
  virtual std::unique_ptr<Operation> Start(std::shared_ptr<const MovePlan> plan, int priority,
                                           uint64_t token) = 0;
  // Takes completions and issues more; true when anything moved on. Appends the token of each
  // operation that became finished, once, and of each that failed before it is quiet.
  virtual bool Poll(std::vector<uint64_t>* attention) = 0;
  // For so long nothing is gained by calling Poll: whoever carries the bytes has enough to do.
  virtual nanoseconds Unattended() const = 0;
  // Devices carry bytes now, for microseconds: who looks again at once takes no processor from them
  // and saves a sleep and a wake-up.
  virtual bool DevicesWork() const { return false; }
};

}  // namespace gantry::transport
