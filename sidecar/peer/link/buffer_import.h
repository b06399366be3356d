// Converts a peer's description of a buffer for the engine. Checks every number before its use.
// Stateless; thread-safe.
#pragma once

#include <memory>
#include <string>

#include "lib/base/result.h"
#include "lib/base/unique_fd.h"
#include "lib/wire/peer_descriptor.h"
#include "sidecar/memory/memory_mapper.h"
#include "sidecar/remote/peer_gateway.h"
#include "sidecar/transport/bounce/remote_stage.h"
#include "sidecar/transport/rdma/rdma_peer.h"
#include "sidecar/transport/tcp/tcp_peer.h"

namespace gantry::peer {

// Imports without mappings: as many allocations as the peer listed, all unmapped.
Result<engine::RemoteBuffer> ImportBuffer(const std::string& peer, const wire::PeerBuffer& buffer);

// The paths of a session; null: the path does not lead to the peer.
struct PeerPaths {
  std::shared_ptr<transport::TcpPeer> streams;
  std::shared_ptr<transport::RdmaPeer> queue_pairs;
  std::shared_ptr<transport::RemoteStage> stage;  // only together with queue_pairs
};

// Adds the targets of transports that address buffers: those that lead to the peer and that the
// owner offers. `imported` is the result of ImportBuffer.
Status AddressFlat(const wire::PeerBuffer& buffer, const PeerPaths& paths,
                   engine::RemoteBuffer* imported);

// Maps the descriptor received for `allocation`, after the checks of a registration. It must be
// sealed, long enough, and open for the granted access. The workers check GPU memory. `exporter`
// must differ between owners (their generations).
Result<std::shared_ptr<const memory::MappedAllocation>> MapDescriptor(
    memory::MemoryMapper& mapper, const wire::PeerAllocation& allocation,
    std::shared_ptr<const UniqueFd> fd, bool writable, const std::string& exporter);

}  // namespace gantry::peer
