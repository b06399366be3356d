// Lends staging memory to peers' sessions: answers OpenStage, CloseStage and CopyStaged, and ends a
// session's stage. Thread-safe.
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
  // All outlive this. `target` null: none is lent, `why_none` says why.
  StageOffers(transport::StageTarget* target, std::string why_none,
              const InitiatorTable& initiators, transport::TargetBuffers& buffers)
      : target_(target),
        why_none_(std::move(why_none)),
        initiators_(initiators),
        buffers_(buffers) {}

  Status Open(const v1::OpenStageRequest& request, bool over_tcp, v1::OpenStageReply* reply) const;
  // The stage is gone after a success.
  Status Close(const v1::CloseStageRequest& request, bool over_tcp) const;
  // Fails when the session is over. Other errors are in the reply; then no byte moves any more.
  Status Copy(const v1::CopyStagedRequest& request, bool over_tcp,
              v1::CopyStagedReply* reply) const;
  // REQUIRES that the session gets no new stage. After the return nothing is copied for it.
  void EndSession(const std::string& session) const;

  // Why GPU memory is not staged for peers' devices; empty: it is.
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
