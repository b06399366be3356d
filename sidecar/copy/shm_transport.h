// Host memory to host memory on one node, through mappings in the copy workers. The copy scheduler
// does the work. The driver alone calls Start and Poll; all other calls are thread-safe.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "sidecar/copy/copy_scheduler.h"

namespace gantry::transport {

class ShmTransport final : public Transport {
 public:
  // `copies` outlives this.
  explicit ShmTransport(CopyScheduler& copies) : copies_(copies) {}

  TransportTraits traits() const override { return {.path = wire::Path::kShm}; }
  Status Probe() override { return {}; }
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
  // Polls the scheduler, also for the operations of the ipc transport.
  PollOutcome Poll(std::vector<uint64_t>* ready_tokens) override {
    return copies_.Poll(ready_tokens);
  }

 private:
  CopyScheduler& copies_;
};

}  // namespace gantry::transport
