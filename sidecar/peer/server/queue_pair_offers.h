// The owner's ends of queue pairs, as the sessions of peers may have them: tells the devices,
// answers ConnectQueuePairs and EndQueuePairs, and ends those of a session. Thread-safe.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lib/base/result.h"
#include "lib/wire/peer.pb.h"
#include "lib/wire/peer_descriptor.h"
#include "sidecar/peer/server/initiator_table.h"
#include "sidecar/transport/rdma/rdma_target.h"

namespace gantry::peer {

class QueuePairOffers {
 public:
  // `target` (null: no RDMA device is used) and the initiators outlive this.
  QueuePairOffers(transport::RdmaTarget* target, std::vector<wire::RdmaDeviceAddress> devices,
                  const InitiatorTable& initiators)
      : target_(target), devices_(std::move(devices)), initiators_(initiators) {}

  void TellDevices(v1::HelloReply* reply) const;
  Status Connect(const v1::ConnectQueuePairsRequest& request, bool over_tcp,
                 v1::ConnectQueuePairsReply* reply) const;
  // They are gone when this succeeds.
  Status End(const v1::EndQueuePairsRequest& request, bool over_tcp) const;
  // Of a session that gets no more. No byte moves through any of its queue pairs when this returns.
  void EndSession(const std::string& session) const;

  // From a peer that may do less with the buffer than its keys grant.
  static void Hide(wire::PeerBuffer* buffer);

 private:
  transport::RdmaTarget* const target_;
  const std::vector<wire::RdmaDeviceAddress> devices_;
  const InitiatorTable& initiators_;
};

}  // namespace gantry::peer
