// The pairs of local and peer devices that get queue pairs. By default devices of equal index are
// paired. Crossings are added when buffers need them. Tracks failed links and their retries. Used
// by the driver.
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

  // Links of a connection, before it leaves out failed links and inactive ports.
  std::vector<RdmaLink> all() const;
  size_t crossings() const { return crossings_.size(); }
  // Adds a link for work that no lane fits. True: a crossing was added. False: it exists but was
  // left out, and is retried. The error says why these devices cannot be linked.
  Result<bool> AddCrossing(DeviceSet here, DeviceSet there);
  // Removes all crossings; needed ones are added again.
  void DropCrossings() { crossings_.clear(); }

  struct Noted {
    bool is_new = false;  // the previous connection had this link
    TimePoint again_at{};
  };
  // Records that a connection lacks this link.
  Noted LeaveOut(const RdmaLink& link, const Error& why, TimePoint now);
  // Records that a connection uses this link.
  void Use(const RdmaLink& link) { left_out_.erase(link); }
  // True shortly after a failure, until the next attempt is due.
  bool Rests(const RdmaLink& link, TimePoint now) const;

 private:
  struct LeftOut {
    Error why;
    int times = 0;  // consecutive failures
    milliseconds backoff{0};
    TimePoint again_at{};
  };

  // Limit of crossings, besides the links of equal index.
  size_t CrossingsMax() const;

  const RdmaDevices& devices_;
  std::vector<RdmaLink> straight_;
  std::set<RdmaLink> crossings_;  // needed by work so far
  std::map<RdmaLink, LeftOut> left_out_;
};

}  // namespace gantry::transport
