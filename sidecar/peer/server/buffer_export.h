// A registered buffer as peers may see it, and its descriptors as peers may have them. Both come
// from the registered state and from nothing else. Stateless; thread-safe.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lib/base/result.h"
#include "lib/base/unique_fd.h"
#include "lib/wire/peer_descriptor.h"
#include "sidecar/peer/identity/peer_identity.h"
#include "sidecar/registry/buffer.h"

namespace gantry::peer {

// Why memory of GPUs is not staged here; empty: it is.
struct WhyNotStaged {
  std::string for_tcp;
  std::string for_bounce;  // unless it is on the RDMA devices itself
};

// kPermissionDenied for a buffer that grants peers nothing; kDraining unless it is active.
Result<wire::PeerBuffer> ExportBuffer(registry::Buffer& buffer, std::vector<wire::PathReport> paths,
                                      const WhyNotStaged& why_not);

// The descriptor of one allocation of an active buffer. Without `writable` it is opened again for
// reading only, so that no process it is handed to maps it for writing by mistake. The kernel
// guards whole allocations; that a peer keeps to the buffer's bytes is left to its sidecar, which
// is of the same trust domain.
Result<std::shared_ptr<const UniqueFd>> ExportDescriptor(registry::Buffer& buffer,
                                                         const wire::WantedAllocation& wanted);

}  // namespace gantry::peer
