// Chooses the local GID for queue pairs to a peer, from the device's current GIDs, since addresses
// change. Thread-safe; the device outlives it.
#pragma once

#include <cstddef>
#include <map>
#include <set>

#include "lib/base/mutex.h"
#include "lib/base/result.h"
#include "sidecar/transport/rdma/verbs/verbs.h"

namespace gantry::transport {

class PeerGids {
 public:
  // `first` is the GID chosen at the start. It serves all peers if an operator named it, otherwise
  // the peers outside this device's subnets.
  PeerGids(const VerbsDevice& device, GidEntry first, bool is_named)
      : device_(device), first_(std::move(first)), is_named_(is_named) {}

  // Returns the GID for a queue pair to this peer GID. Fails when none can reach it. Logs a GID
  // other than the first, once per peer. Blocks as long as the device takes.
  Result<GidEntry> For(const Gid& peer) EXCLUDES(mutex_);

 private:
  static constexpr size_t kSaidMax = 1024;  // limit, since peers choose the GIDs that they report

  void Say(const Gid& peer, const GidChoice& chosen) EXCLUDES(mutex_);

  const VerbsDevice& device_;
  const GidEntry first_;
  const bool is_named_;
  Mutex mutex_;
  std::set<Gid> said_ GUARDED_BY(mutex_);  // peers already logged
};

// Returns the prefix length of each address of this network namespace, as a GID. Empty:
// unavailable.
std::map<Gid, int> PrefixLengths();

}  // namespace gantry::transport
