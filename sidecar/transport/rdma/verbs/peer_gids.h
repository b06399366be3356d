// Which of a device's GIDs the queue pairs to a peer use, of those that it has when they are made:
// addresses come and go. Thread-safe; the device outlives it.
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
  // `first`: of the start. It is that of all peers where an operator has named it, else of those
  // that are in no subnet of this device.
  PeerGids(const VerbsDevice& device, GidEntry first, bool is_named)
      : device_(device), first_(std::move(first)), is_named_(is_named) {}

  // For a queue pair whose other end has this GID. Fails where none can reach it. Another one than
  // the first is said once for each peer. May take as long as the device takes.
  Result<GidEntry> For(const Gid& peer) EXCLUDES(mutex_);

 private:
  static constexpr size_t kSaidMax = 1024;  // peers say what GIDs they have, and may say many

  void Say(const Gid& peer, const GidChoice& chosen) EXCLUDES(mutex_);

  const VerbsDevice& device_;
  const GidEntry first_;
  const bool is_named_;
  Mutex mutex_;
  std::set<Gid> said_ GUARDED_BY(mutex_);  // of these peers
};

// Of the addresses of this network namespace, as GIDs: how long the prefix of each one's subnet is.
// Empty: they cannot be asked.
std::map<Gid, int> PrefixLengths();

}  // namespace gantry::transport
