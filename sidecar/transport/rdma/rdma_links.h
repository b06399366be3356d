// Which devices here and at a peer get queue pairs to one another: those of equal places, and what
// crosses between others because buffers needed it; which of these failed, and when they are tried
// again. Belongs to the engine's driver.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "lib/base/clock.h"
#include "sidecar/transport/rdma/rdma_connection.h"

namespace gantry::transport {

class RdmaLinks {
 public:
  // `devices` outlives this.
  RdmaLinks(const RdmaDevices& devices, size_t peer_devices);

  // What a connection has, but for what is left out of it and for ports that are not active.
  std::vector<RdmaLink> all() const;
  size_t crossings() const { return crossings_.size(); }
  // For work that no lane fits. True: what joins its devices was added just now; false: that is
  // left out, and tried again. The error says why they cannot be joined.
  Result<bool> Join(DeviceSet here, DeviceSet there);
  // What is needed comes again.
  void DropCrossings() { crossings_.clear(); }

  struct Noted {
    bool is_new = false;  // the connection before did not do without it
    TimePoint again_at{};
  };
  // A connection does without it.
  Noted LeaveOut(const RdmaLink& link, const Error& why, TimePoint now);
  // A connection uses it.
  void Use(const RdmaLink& link) { left_out_.erase(link); }
  // It failed when it was last tried, and that is not long ago.
  bool Rests(const RdmaLink& link, TimePoint now) const;

 private:
  struct LeftOut {
    Error why;
    int times = 0;  // in a row
    milliseconds backoff{0};
    TimePoint again_at{};
  };

  // How many crossings there may be, beside the links of equal places.
  size_t CrossingsMax() const;

  const RdmaDevices& devices_;
  std::vector<RdmaLink> straight_;
  std::set<RdmaLink> crossings_;  // that work needed so far
  std::map<RdmaLink, LeftOut> left_out_;
};

}  // namespace gantry::transport
