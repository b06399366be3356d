#include "sidecar/peer/server/stage_offers.h"

#include "lib/wire/stage_messages.h"

namespace gantry::peer {

Status StageOffers::Usable() const {
  if (target_ != nullptr) return target_->Usable();
  return Fail(ErrorCode::kPathUnavailable,
              why_none_.empty() ? "nothing stages it here" : why_none_);
}

std::string StageOffers::WhyNot() const {
  const Status usable = Usable();
  return usable ? "" : usable.error().message;
}

Status StageOffers::Open(const v1::OpenStageRequest& request, bool over_tcp,
                         v1::OpenStageReply* reply) const {
  RETURN_IF_ERROR(initiators_.InitiatorOf(request.session(), over_tcp));
  RETURN_IF_ERROR(Usable());
  ASSIGN_OR_RETURN(const uint32_t slices, wire::SlicesOf(request));
  ASSIGN_OR_RETURN(const wire::StageGrant grant, target_->Open(request.session(), slices));
  // One that ended meanwhile may have been looked through before this was there.
  if (auto open = initiators_.InitiatorOf(request.session(), over_tcp); !open) {
    target_->End(request.session());
    return Fail(std::move(open).error());
  }
  wire::ToMessage(grant, reply);
  return {};
}

Status StageOffers::Close(const v1::CloseStageRequest& request, bool over_tcp) const {
  RETURN_IF_ERROR(initiators_.InitiatorOf(request.session(), over_tcp));
  if (target_ != nullptr) target_->Close(request.session(), request.stage());
  return {};
}

Status StageOffers::Copy(const v1::CopyStagedRequest& request, bool over_tcp,
                         v1::CopyStagedReply* reply) const {
  RETURN_IF_ERROR(initiators_.InitiatorOf(request.session(), over_tcp));
  if (const Status copied = TryCopy(request); !copied) wire::ToMessage(copied.error(), reply);
  return {};
}

Status StageOffers::TryCopy(const v1::CopyStagedRequest& request) const {
  RETURN_IF_ERROR(Usable());
  ASSIGN_OR_RETURN(const wire::StagedMove move, wire::FromMessage(request));
  return target_->Copy(request.session(), move, buffers_);
}

void StageOffers::EndSession(const std::string& session) const {
  if (target_ != nullptr) target_->End(session);
}

}  // namespace gantry::peer
