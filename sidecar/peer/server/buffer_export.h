// Describes registered buffers for peers, and provides their descriptors, from registered state
// only. Stateless; thread-safe.
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

// Why memory that the copy workers alone touch is not staged here; empty: it is.
struct WhyNotStaged {
  std::string for_tcp;                // GPU memory
  std::string for_bounce;             // GPU memory, unless the buffer itself is on the RDMA devices
  std::string unsealed_for_tcp = {};  // host memory whose file can shrink
};

// kPermissionDenied for a buffer that grants peers no access; kDraining unless it is active.
Result<wire::PeerBuffer> ExportBuffer(registry::Buffer& buffer, std::vector<wire::PathReport> paths,
                                      const WhyNotStaged& why_not);

// Returns the descriptor of one allocation of an active buffer. Without `writable` it is reopened
// read-only, which prevents accidental writable mappings. The kernel protects whole allocations
// only. The peer's sidecar, in the same trust domain, enforces the buffer's bounds.
Result<std::shared_ptr<const UniqueFd>> ExportDescriptor(registry::Buffer& buffer,
                                                         const wire::WantedAllocation& wanted);

}  // namespace gantry::peer
