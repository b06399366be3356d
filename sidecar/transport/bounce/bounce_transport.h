// GPU memory that RDMA devices cannot reach, moved by RDMA through host staging memory on each
// side. Each side's workers copy between its GPUs and its staging memory. Plans address remote
// buffers. The driver alone calls Start and Poll; all other calls are thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "sidecar/copy/staging_half.h"
#include "sidecar/transport/bounce/bounce_routes.h"
#include "sidecar/transport/bounce/remote_stage.h"
#include "sidecar/transport/rdma/rdma_transport.h"
#include "sidecar/transport/transport.h"

namespace gantry::transport {

class BounceTransport final : public Transport {
 public:
  // This side's half of the staging memory and its RDMA registration.
  struct Here {
    StagingHalf& half;
    BounceStage stage;
  };
  // `rdma` carries the bytes and runs posted tasks; it and the half outlive this. `here` is an
  // error if this side cannot stage.
  BounceTransport(RdmaTransport& rdma, Result<Here> here);

  // Call once per session with a peer that has queue pairs. Any thread.
  std::shared_ptr<RemoteStage> AddStage(std::string name, std::shared_ptr<RdmaPeer> peer,
                                        std::shared_ptr<StageExchange> exchange,
                                        const RemoteStage::Times& times = {}) const;

  TransportTraits traits() const override {
    return {.path = wire::Path::kBounce, .addresses_buffers = true};
  }
  Status Probe() override;
  Status CanReach(const memory::MappedAllocation& local,
                  const RemoteAllocation& remote) const override;
  Status CanCarry(const LocalSide& local,
                  const std::vector<RemoteAllocation>& remote) const override;
  std::unique_ptr<Operation> Start(std::shared_ptr<const MovePlan> plan, int priority,
                                   uint64_t token) override;
  PollOutcome Poll(std::vector<uint64_t>* ready_tokens) override;

 private:
  Status CanStage(const LocalSide& local) const;

  RdmaTransport& rdma_;
  const Result<Here> here_;
  const std::shared_ptr<std::vector<uint64_t>> ready_tokens_;  // tokens since the last Poll
};

}  // namespace gantry::transport
