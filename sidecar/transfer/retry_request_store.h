// Keeps requests of transfers that may be retried, up to a memory limit. A request beyond it is not
// retried. Thread-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>

#include "lib/wire/transfer_request.h"

namespace gantry::engine {

class RetryRequestStore : public std::enable_shared_from_this<RetryRequestStore> {
 public:
  explicit RetryRequestStore(size_t bytes_max = size_t{64} << 20) : bytes_max_(bytes_max) {}

  // Returns null beyond the limit. The memory counts until the last reference is gone.
  std::shared_ptr<const wire::TransferRequest> Keep(wire::TransferRequest&& request);
  size_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

 private:
  const size_t bytes_max_;
  std::atomic<size_t> bytes_{0};
};

}  // namespace gantry::engine
