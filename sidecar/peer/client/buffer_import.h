// A peer's description of a buffer, made fit for the engine: every number checked before it is
// used. Stateless; thread-safe.
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

// Without mappings: allocations are as many as the peer listed, none of them mapped.
Result<engine::RemoteBuffer> ImportBuffer(const std::string& peer, const wire::PeerBuffer& buffer);

// Of a session; null: that path does not lead to the peer.
struct PeerPaths {
  std::shared_ptr<transport::TcpPeer> streams;
  std::shared_ptr<transport::RdmaPeer> queue_pairs;
  std::shared_ptr<transport::RemoteStage> stage;  // with queue pairs alone
};

// Lets the transports that address buffers reach it, as far as they lead to the peer and its owner
// offers it there. `imported` is what ImportBuffer made of it.
Status AddressFlat(const wire::PeerBuffer& buffer, const PeerPaths& paths,
                   engine::RemoteBuffer* imported);

// Maps what came for `allocation` after the checks of a registration: sealed against shrinking, as
// long as was said, and open for what is granted. What GPU memory is the workers check. `exporter`
// differs between owners (their generations).
Result<std::shared_ptr<const memory::MappedAllocation>> MapDescriptor(
    memory::MemoryMapper& mapper, const wire::PeerAllocation& allocation,
    std::shared_ptr<const UniqueFd> fd, bool writable, const std::string& exporter);

}  // namespace gantry::peer
