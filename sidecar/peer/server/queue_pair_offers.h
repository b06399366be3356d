// The owner's ends of queue pairs, per peer session. Announces the devices, answers
// ConnectQueuePairs and EndQueuePairs, and ends those of a session. Thread-safe.
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
  // All outlive this. `target` null: no RDMA device is in use.
  QueuePairOffers(transport::RdmaTarget* target, std::vector<wire::RdmaDeviceAddress> devices,
                  const InitiatorTable& initiators)
      : target_(target), devices_(std::move(devices)), initiators_(initiators) {}

  void AddDevices(v1::HelloReply* reply) const;
  Status Connect(const v1::ConnectQueuePairsRequest& request, bool over_tcp,
                 v1::ConnectQueuePairsReply* reply) const;
  // The queue pairs are destroyed after a success.
  Status End(const v1::EndQueuePairsRequest& request, bool over_tcp) const;
  // REQUIRES that the session gets no new queue pairs. After the return no byte moves through them.
  void EndSession(const std::string& session) const;

  // Removes the RDMA keys, for a peer with less access to the buffer than the keys grant.
  static void Hide(wire::PeerBuffer* buffer);

 private:
  transport::RdmaTarget* const target_;
  const std::vector<wire::RdmaDeviceAddress> devices_;
  const InitiatorTable& initiators_;
};

}  // namespace gantry::peer
