#include "sidecar/app/bounce_path.h"

#include <utility>

#include "lib/base/log.h"

namespace gantry {

BouncePath::BouncePath(RdmaPath& rdma, Result<StagingArea*> staging)
    : staging_(std::move(staging)),
      registrar_(rdma.devices()),
      stage_(Register()),
      target_(stage_ ? std::make_unique<transport::StageTarget>(registrar_, *(*staging_)->target(),
                                                                transport::StageTarget::Limits())
                     : nullptr) {
  if (!stage_)
    log::Info("memory of GPUs has no way over RDMA's staging", {{"why", stage_.error()}});
}

Result<transport::BounceStage> BouncePath::Register() {
  ASSIGN_OR_RETURN(StagingArea* const staging, staging_);
  const transport::StagingHalf& half = *staging->initiator();
  ASSIGN_OR_RETURN(
      auto nic_memory,
      registrar_.Register({{half.allocation, half.stage_offset, half.memory.size()}}, {}));
  return transport::BounceStage{half.allocation, std::move(nic_memory), half.stage_offset};
}

Result<transport::StageTarget*> BouncePath::target() const {
  if (!stage_) return Fail(stage_.error());
  return target_.get();
}

std::unique_ptr<transport::BounceTransport> BouncePath::MakeTransport(
    transport::RdmaTransport& rdma) const {
  using Here = transport::BounceTransport::Here;
  Result<Here> here = stage_ ? Result<Here>(Here{*(*staging_)->initiator(), *stage_})
                             : Fail(Error(stage_.error()).WithContext("staging on RDMA devices"));
  return std::make_unique<transport::BounceTransport>(rdma, std::move(here));
}

}  // namespace gantry
