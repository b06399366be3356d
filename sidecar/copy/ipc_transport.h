// GPU memory to GPU memory, or to and from host memory, on one node, through mappings in the copy
// workers. It decides which pairs can be copied; the copy scheduler does the work. The driver alone
// calls Start and Poll; all other calls are thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "sidecar/copy/copy_scheduler.h"

namespace gantry::transport {

class IpcTransport final : public Transport {
 public:
  // `gpus` tells whether a worker has had a GPU, or why not; any thread. `copies` outlives this.
  IpcTransport(std::function<Status()> gpus, CopyScheduler& copies)
      : gpus_(std::move(gpus)), copies_(copies) {}

  TransportTraits traits() const override {
    return {.path = wire::Path::kIpc, .host_memory_needs_no_peer = true};
  }
  Status Probe() override;
  Status CanCarry(const LocalSide& /*local*/,
                  const std::vector<RemoteAllocation>& /*remote*/) const override {
    return {};
  }
  Status CanReach(const memory::MappedAllocation& local,
                  const RemoteAllocation& remote) const override;
  std::unique_ptr<Operation> Start(std::shared_ptr<const MovePlan> plan, int priority,
                                   uint64_t token) override {
    return copies_.Start(std::move(plan), priority, token);
  }
  // The shm transport polls the scheduler and reports finished operations.
  PollOutcome Poll(std::vector<uint64_t>* /*ready_tokens*/) override { return {}; }

 private:
  const std::function<Status()> gpus_;
  CopyScheduler& copies_;
};

}  // namespace gantry::transport
