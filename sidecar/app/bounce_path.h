// The objects behind the bounce path: the tcp path's staging memory, registered on the rdma path's
// devices. Both outlive it. Used by the main thread.
#pragma once

#include <memory>

#include "lib/base/result.h"
#include "sidecar/app/rdma_path.h"
#include "sidecar/app/staging_area.h"
#include "sidecar/transport/bounce/bounce_transport.h"
#include "sidecar/transport/bounce/stage_target.h"
#include "sidecar/transport/rdma/verbs/rdma_registrar.h"

namespace gantry {

class BouncePath {
 public:
  // An error in `staging` says why there is none. Then the path reaches only peers' GPUs.
  BouncePath(RdmaPath& rdma, Result<StagingArea*> staging);

  // Lends memory to peers; the error says why it cannot.
  Result<transport::StageTarget*> target() const;
  // Call once.
  std::unique_ptr<transport::BounceTransport> MakeTransport(transport::RdmaTransport& rdma) const;

 private:
  Result<transport::BounceStage> Register();

  const Result<StagingArea*> staging_;
  transport::RdmaRegistrar registrar_;  // on all devices
  const Result<transport::BounceStage> stage_;
  const std::unique_ptr<transport::StageTarget> target_;  // null: nothing is lent
};

}  // namespace gantry
