// The requests of transfers that may be tried again, as long as there is room for them: one that
// there is no room for is not tried again. Thread-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>

#include "lib/wire/transfer_request.h"

namespace gantry::engine {

class RequestShelf : public std::enable_shared_from_this<RequestShelf> {
 public:
  explicit RequestShelf(size_t bytes_max = size_t{64} << 20) : bytes_max_(bytes_max) {}

  // Null: there is no room.
  std::shared_ptr<const wire::TransferRequest> Keep(wire::TransferRequest&& request);
  size_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

 private:
  const size_t bytes_max_;
  std::atomic<size_t> bytes_{0};
};

}  // namespace gantry::engine
