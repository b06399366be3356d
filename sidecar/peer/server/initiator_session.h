// One session of an initiator: its stream, its lease connection, and what it knows of buffers here.
// InitiatorTable guards it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "lib/base/clock.h"
#include "lib/wire/peer_descriptor.h"
#include "sidecar/peer/server/known_buffers.h"

namespace gantry::peer {

// Sends to one initiator. Called under the table's lock: must not block or call back.
class InitiatorStream {
 public:
  virtual ~InitiatorStream() = default;
  virtual void PushRevocation(const wire::PeerRevocation& revocation) = 0;
  virtual void PushHeartbeat() = 0;
  virtual void PushShutdown(milliseconds deadline) = 0;  // also ends the stream
  virtual void End() = 0;
};

class InitiatorSession {
 public:
  struct Facts {
    wire::PeerIdentity initiator;
    std::string verified_identity;  // see VerifiedIdentity
    bool over_tcp = false;
    std::string lease_ticket = {};
    TimePoint lease_ticket_expires = {};
  };

  InitiatorSession(Facts facts, InitiatorStream* stream);

  const Facts& facts() const { return facts_; }
  KnownBuffers& buffers() { return buffers_; }
  const KnownBuffers& buffers() const { return buffers_; }

  // Null: broken.
  InitiatorStream* stream() const { return stream_; }
  void SetStreamEnded() { stream_ = nullptr; }
  // True while calls of the session are accepted.
  bool is_open() const { return stream_ != nullptr && !ending_; }
  bool ending() const { return ending_; }
  void SetEnding() { ending_ = true; }
  // Ends all access of an open session. No effect on another one.
  void CutOff();
  // True when it was cut off. Shared with waiting Revoke calls, which may outlive the session.
  const std::shared_ptr<bool>& cut_off() const { return cut_off_; }

  // The lease connection is there. False: it is too late for that.
  bool OpenLease(TimePoint now);
  void EndLease(TimePoint now);
  bool has_lease() const { return lease_ == Lease::kOpen; }
  // When the initiator has unmapped everything for sure, as far as that is known; max: it is not.
  TimePoint UnmappedAt(milliseconds process_exit_grace) const;
  bool IsUnmapped(TimePoint now, milliseconds process_exit_grace) const;
  // The stream is broken and nothing is mapped: the session can be forgotten.
  bool IsOver(TimePoint now, milliseconds process_exit_grace) const {
    return stream_ == nullptr && IsUnmapped(now, process_exit_grace);
  }

  // Tells the initiator to release the buffer within `time`, unless a pending revocation covers
  // that. Returns the revocation's number, or 0 when the initiator cannot be told. `last_number` is
  // the last mark's or revocation's.
  uint64_t Revoke(const RevokedBuffer& buffer, TimePoint now, milliseconds time,
                  uint64_t* last_number);

 private:
  enum class Lease { kAwaited, kOpen, kEnded };

  const Facts facts_;
  InitiatorStream* stream_;
  bool ending_ = false;
  Lease lease_ = Lease::kAwaited;
  TimePoint lease_ended_;
  KnownBuffers buffers_;
  const std::shared_ptr<bool> cut_off_ = std::make_shared<bool>(false);
};

}  // namespace gantry::peer
