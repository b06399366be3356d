// GPU memory to GPU memory, or to and from the host's, on one node: both allocations are mapped in
// the copy workers, which have the GPUs copy. The workers' jobs are the shm transport's to give
// out: this one says which pairs can be moved so, and has them moved there. Owned by the engine's
// driver, but for Probe, CanReach, Expect, RowsOf and NeedsPeer.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "sidecar/copy/shm_transport.h"

namespace gantry::transport {

class IpcTransport final : public Transport {
 public:
  // `gpus`: whether a worker has had one, or why not; any thread. `copies` outlives this.
  IpcTransport(std::function<Status()> gpus, ShmTransport& copies)
      : gpus_(std::move(gpus)), copies_(copies) {}

  wire::Path path() const override { return wire::Path::kIpc; }
  Status Probe() override;
  Status CanReach(const memory::MappedAllocation& local,
                  const RemoteAllocation& remote) const override;
  void Expect(size_t named) override { copies_.RouseFor(named); }
  RowLimits RowsOf(const std::vector<std::shared_ptr<const memory::MappedAllocation>>& local,
                   const std::vector<RemoteAllocation>& remote) const override;
  bool NeedsPeer(const RemoteAllocation& remote) const override;
  std::unique_ptr<Operation> Start(std::shared_ptr<const MovePlan> plan, int priority,
                                   uint64_t token) override {
    return copies_.Start(std::move(plan), priority, token);
  }
  // The shm transport reports what ends.
  bool Poll(std::vector<uint64_t>* /*attention*/) override { return false; }
  nanoseconds Unattended() const override { return nanoseconds::max(); }

 private:
  const std::function<Status()> gpus_;
  ShmTransport& copies_;
};

}  // namespace gantry::transport
