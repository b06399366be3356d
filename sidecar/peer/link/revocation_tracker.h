// The revocations of a peer's current session: which fetches they fail, and when the owner can be
// told that a buffer is unmapped. Fetches take turns here, because a revocation may concern a
// buffer that the fetch in flight is about to map. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lib/base/clock.h"
#include "lib/base/mutex.h"
#include "lib/base/result.h"
#include "lib/wire/peer_descriptor.h"
#include "sidecar/peer/link/remote_buffer_cache.h"
#include "sidecar/remote/peer_gateway.h"

namespace gantry::peer {

class RevocationTracker {
 public:
  // The cache outlives the tracker.
  RevocationTracker(std::string peer, RemoteBufferCache& cache);

  // The session becomes the current one. Its number is not 0.
  void BeginSession(uint64_t session) EXCLUDES(mutex_);
  // No session is current, and all buffers are retired. Nothing more is published.
  void EndSession(const Error& why) EXCLUDES(mutex_);
  // Retires the buffer. Has no effect unless the session is the current one.
  void Add(uint64_t session, const wire::PeerRevocation& revocation) EXCLUDES(mutex_);

  // Waits for the turn of this fetch: one runs at a time. Call EndFetch after success.
  Status BeginFetch(TimePoint deadline) EXCLUDES(mutex_);
  void EndFetch() EXCLUDES(mutex_);
  bool fetching() const EXCLUDES(mutex_);

  // Both are for the fetch that has its turn. kCancelled: its session has ended. kDraining: a
  // buffer is revoked, and *revoked is set to its generation.
  //
  // Call Check with what the owner described. A revocation that arrived before the answer was asked
  // for may be acknowledged at any time.
  Status Check(uint64_t session, const std::vector<wire::PeerBuffer>& buffers,
               uint64_t* revoked) const EXCLUDES(mutex_);
  // Adds all of the buffers to the cache, or none. `lease`: see RemoteBufferCache.
  Status Publish(uint64_t session, std::vector<engine::RemoteBuffer> buffers,
                 const std::shared_ptr<const void>& lease, uint64_t* revoked) EXCLUDES(mutex_);

  // Returns the ids of revocations whose buffers are not mapped and cannot be mapped any more. Pass
  // them to SetAcknowledged once the owner has accepted them.
  std::vector<uint64_t> TakeUnmapped() EXCLUDES(mutex_);
  void SetAcknowledged(const std::vector<uint64_t>& ids) EXCLUDES(mutex_);
  // Waits until no revocation of the buffer fails fetches. False at the deadline or after
  // StopWaiting.
  bool AwaitAcknowledged(uint64_t generation, TimePoint deadline) EXCLUDES(mutex_);

  // Ends all current and future waits.
  void StopWaiting() EXCLUDES(mutex_);

 private:
  struct Revocation {
    wire::PeerRevocation what;
    uint64_t fetch = 0;  // the fetch in flight when it arrived, which may still map the buffer
    // True once the owner has accepted the acknowledgement; `fetch` is then the one in flight at
    // that time. The owner may have described the buffer to that fetch before, and have forgotten
    // it.
    bool acknowledged = false;
  };

  bool IsRevoked(uint64_t generation) const REQUIRES(mutex_);
  Status CheckOne(uint64_t session, uint64_t generation, uint64_t* revoked) const REQUIRES(mutex_);

  const std::string peer_;
  RemoteBufferCache& cache_;

  mutable Mutex mutex_;
  Condition changed_;
  uint64_t session_ GUARDED_BY(mutex_) = 0;  // 0: none is current
  std::vector<Revocation> revocations_ GUARDED_BY(mutex_);
  uint64_t fetch_ GUARDED_BY(mutex_) = 0;  // the one in flight; 0: none
  uint64_t last_fetch_ GUARDED_BY(mutex_) = 0;
  bool stopping_ GUARDED_BY(mutex_) = false;
};

}  // namespace gantry::peer
