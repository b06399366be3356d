// What the path bounce of a sidecar runs on: the staging memory of the tcp path, registered on the
// devices of the rdma path, which both outlive it. Used by the main thread.
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
  // `staging`: an error says why there is none; then the path leads to the GPUs of peers alone.
  BouncePath(RdmaPath& rdma, Result<StagingArea*> staging);

  // What peers are lent; the error says why nothing.
  Result<transport::StageTarget*> target() const;
  // Once.
  std::unique_ptr<transport::BounceTransport> MakeTransport(transport::RdmaTransport& rdma) const;

 private:
  Result<transport::BounceStage> Register();

  const Result<StagingArea*> staging_;
  transport::RdmaRegistrar registrar_;  // on all devices
  const Result<transport::BounceStage> stage_;
  const std::unique_ptr<transport::StageTarget> target_;  // null: nothing is lent
};

}  // namespace gantry
