// The state of the link to a peer: the current session, why there is none, and whether the link
// closes. The link's thread changes it, and others wait for changes. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lib/base/clock.h"
#include "lib/base/mutex.h"
#include "lib/base/result.h"
#include "sidecar/peer/client/peer_client.h"
#include "sidecar/peer/link/peer_session.h"
#include "sidecar/remote/peer_control.h"

namespace gantry::peer {

class LinkState {
 public:
  LinkState(const std::string& name, const std::string& address);

  // The link's thread calls these.
  //
  // Returns the number of the next session. Events of earlier ones are ignored from here on.
  uint64_t BeginOpening() EXCLUDES(mutex_);
  // The client that is being opened, so that Close and StopWaiting end its calls; null: none is.
  // Returns false when either was called: open no session.
  bool SetOpening(std::shared_ptr<PeerClient> client) EXCLUDES(mutex_);
  void FailOpening(Error why) EXCLUDES(mutex_);
  void SetUp(std::shared_ptr<PeerSession> session) EXCLUDES(mutex_);
  void SetDown(const Error& why) EXCLUDES(mutex_);
  // Returns why the session has to end: Close, its own end, or silence for longer than
  // `silence_max` and some heartbeats.
  std::optional<Error> ReasonToEnd(milliseconds silence_max) const EXCLUDES(mutex_);
  // Close has nothing left to wait for.
  void SetClosed() EXCLUDES(mutex_);

  // The peer said something in this session. Returns false when the session is not the latest one.
  bool Hear(uint64_t session) EXCLUDES(mutex_);
  // The session ended at the peer. The link's thread notices it later.
  void HearEnd(uint64_t session, const Error& why) EXCLUDES(mutex_);

  // The peer never comes up again. Ends the calls that are in progress.
  void Close() EXCLUDES(mutex_);
  // Ends connecting, fetching and all waits, except for AwaitClosed without `until_stop`.
  void StopWaiting() EXCLUDES(mutex_);

  bool closing() const EXCLUDES(mutex_);
  bool stopping() const EXCLUDES(mutex_);
  // The current session; null: the peer is not up.
  std::shared_ptr<PeerSession> session() const EXCLUDES(mutex_);
  // True while this session is the current one and has not ended at the peer.
  bool IsUsable(const PeerSession& session) const EXCLUDES(mutex_);
  // True when one of the proofs is of the current session, which has not ended. Callers hold locks
  // of their own: no session is destroyed by this.
  bool IsProvenBy(const std::vector<std::string>& proofs) const EXCLUDES(mutex_);
  engine::PeerInfo Info() const EXCLUDES(mutex_);
  // The error for callers that need the peer.
  Error NotUp() const EXCLUDES(mutex_);

  // Waits for a session that can be used. kPeerLost: the peer has been down for `down_max`.
  Result<std::shared_ptr<PeerClient>> AwaitClient(TimePoint deadline,
                                                  std::optional<milliseconds> down_max)
      EXCLUDES(mutex_);
  // Waits until the peer is up, until the deadline, or for a peer that is down until `down_wait`
  // after it went down.
  void AwaitReturn(TimePoint deadline, milliseconds down_wait) EXCLUDES(mutex_);
  // Waits until the peer is up or the deadline. Fails only with kShuttingDown.
  Status AwaitUp(TimePoint deadline) EXCLUDES(mutex_);
  // False at the deadline; also after StopWaiting, if that is to end the wait.
  bool AwaitClosed(TimePoint deadline, bool until_stop) EXCLUDES(mutex_);
  // Waits for any change. Some ends of sessions are noticed late: do not wait long.
  void AwaitChange(TimePoint deadline) EXCLUDES(mutex_);

 private:
  void SetState(engine::PeerState state) REQUIRES(mutex_);
  Error NotUpLocked() const REQUIRES(mutex_);

  mutable Mutex mutex_;
  Condition changed_;
  std::shared_ptr<PeerClient> opening_ GUARDED_BY(mutex_);
  std::shared_ptr<PeerSession> session_ GUARDED_BY(mutex_);  // null: not up
  uint64_t last_session_ GUARDED_BY(mutex_) = 0;
  std::optional<Error> ended_ GUARDED_BY(mutex_);  // the latest session's end at the peer
  TimePoint last_heard_ GUARDED_BY(mutex_);
  TimePoint went_down_ GUARDED_BY(mutex_){};  // initially long ago: never up
  bool stopping_ GUARDED_BY(mutex_) = false;  // waits are over
  bool closing_ GUARDED_BY(mutex_) = false;
  bool closed_ GUARDED_BY(mutex_) = false;
  engine::PeerInfo info_ GUARDED_BY(mutex_);
};

}  // namespace gantry::peer
