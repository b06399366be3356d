// GPU memory to GPU memory, or to and from host memory, on one node, through mappings in the copy
// workers. It decides which pairs can be copied. The shm transport schedules the jobs. The driver
// alone calls Start, Poll and Unattended; all other calls are thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "sidecar/copy/shm_transport.h"

namespace gantry::transport {

class IpcTransport final : public Transport {
 public:
  // `gpus` tells whether a worker has had a GPU, or why not; any thread. `copies` outlives this.
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
  // The shm transport reports finished operations.
  bool Poll(std::vector<uint64_t>* /*attention*/) override { return false; }
  nanoseconds Unattended() const override { return nanoseconds::max(); }

 private:
  const std::function<Status()> gpus_;
  ShmTransport& copies_;
};

}  // namespace gantry::transport
