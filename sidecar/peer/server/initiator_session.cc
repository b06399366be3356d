#include "sidecar/peer/server/initiator_session.h"

#include <algorithm>
#include <utility>

namespace gantry::peer {
namespace {

constexpr milliseconds kCutOffTime{500};
// An idle initiator over TCP needs this to say that it let go. To be cut off would cost it what it
// does with other buffers.
constexpr milliseconds kLetGoTime{250};
// For a caller that calls Revoke again to have the buffer refused.
constexpr milliseconds kRefusalTime{1'000};

}  // namespace

InitiatorSession::InitiatorSession(Facts facts, InitiatorStream* stream)
    : facts_(std::move(facts)), stream_(stream) {}

void InitiatorSession::CutOff() {
  if (!is_open()) return;
  ending_ = true;
  *cut_off_ = true;
  stream_->End();
}

bool InitiatorSession::OpenLease(TimePoint now) {
  if (facts_.lease_ticket_expires < now || stream_ == nullptr) return false;
  lease_ = Lease::kOpen;
  return true;
}

void InitiatorSession::EndLease(TimePoint now) {
  lease_ = Lease::kEnded;
  lease_ended_ = now;
  if (stream_ != nullptr) stream_->End();
}

TimePoint InitiatorSession::UnmappedAt(milliseconds process_exit_grace) const {
  return lease_ == Lease::kEnded ? lease_ended_ + process_exit_grace : TimePoint::max();
}

// Descriptors are handed over through an open lease connection alone, so before it was opened
// nothing can be mapped.
bool InitiatorSession::IsUnmapped(TimePoint now, milliseconds process_exit_grace) const {
  if (facts_.over_tcp) return stream_ == nullptr;
  return lease_ == Lease::kAwaited || now >= UnmappedAt(process_exit_grace);
}

uint64_t InitiatorSession::Revoke(const RevokedBuffer& buffer, TimePoint now, milliseconds time,
                                  uint64_t* last_number) {
  if (stream_ == nullptr) return 0;
  if (const uint64_t covering = buffers_.CoveringRevocation(buffer.buffer_id)) return covering;
  const uint64_t revocation = ++*last_number;
  KnownBuffers::Pending pending;
  pending.buffer = buffer;
  pending.buffer.refuse_to_peers = nullptr;
  if (facts_.over_tcp) {
    // The rest of the time is for closing the session's data connections.
    time = std::max(kLetGoTime, time - std::min(time / 4, kCutOffTime));
    pending.refusal = pending.cut_off = now + time;
    pending.refusable = buffer.refuse_to_peers != nullptr;
    if (pending.refusable) pending.cut_off += kRefusalTime;
  }
  buffers_.AddRevocation(revocation, std::move(pending));
  const auto deadline_ms = static_cast<uint32_t>(time.count());
  stream_->PushRevocation({revocation, buffer.buffer_id, buffer.buffer_generation,
                           deadline_ms / 4 * 3, deadline_ms, buffer.suspended});
  return revocation;
}

}  // namespace gantry::peer
