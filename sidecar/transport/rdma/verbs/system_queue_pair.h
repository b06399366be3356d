// Queue pairs and completion queues of libibverbs, for system_verbs.cc. See verbs.h for threads.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <string>

#include "sidecar/transport/rdma/verbs/verbs.h"

namespace gantry::transport {

Result<std::unique_ptr<VerbsCompletionQueue>> MakeSystemCompletionQueue(ibv_context* context,
                                                                        const std::string& device,
                                                                        uint32_t depth);
// `queue` comes from MakeSystemCompletionQueue of the same device.
Result<std::unique_ptr<VerbsQueuePair>> MakeSystemQueuePair(ibv_pd* domain,
                                                            const std::string& device, uint8_t port,
                                                            VerbsCompletionQueue& queue,
                                                            const QueuePairOptions& options);

}  // namespace gantry::transport
