// Staging memory of this sidecar as the sessions of peers may have it: answers OpenStage,
// CloseStage and CopyStaged, and ends what a session has. Thread-safe.
#pragma once

#include <string>
#include <utility>

#include "lib/base/result.h"
#include "lib/wire/peer.pb.h"
#include "sidecar/peer/server/initiator_table.h"
#include "sidecar/transport/bounce/stage_target.h"

namespace gantry::peer {

class StageOffers {
 public:
  // `target` (null: none is lent, `why_none` says why), the initiators and the buffers outlive
  // this.
  StageOffers(transport::StageTarget* target, std::string why_none,
              const InitiatorTable& initiators, transport::TargetBuffers& buffers)
      : target_(target),
        why_none_(std::move(why_none)),
        initiators_(initiators),
        buffers_(buffers) {}

  Status Open(const v1::OpenStageRequest& request, bool over_tcp, v1::OpenStageReply* reply) const;
  // It is gone when this succeeds.
  Status Close(const v1::CloseStageRequest& request, bool over_tcp) const;
  // Fails when the session is over. What else goes wrong is in the reply, and no byte moves then.
  Status Copy(const v1::CopyStagedRequest& request, bool over_tcp,
              v1::CopyStagedReply* reply) const;
  // Of a session that gets no more. Nothing is copied for it any more when this returns.
  void EndSession(const std::string& session) const;

  // Why the bytes of GPUs are not staged for peers' devices; empty: they are.
  std::string WhyNot() const;

 private:
  Status TryCopy(const v1::CopyStagedRequest& request) const;
  Status Usable() const;

  transport::StageTarget* const target_;
  const std::string why_none_;
  const InitiatorTable& initiators_;
  transport::TargetBuffers& buffers_;
};

}  // namespace gantry::peer
