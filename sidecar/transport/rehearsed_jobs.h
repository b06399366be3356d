// The jobs of a transfer that is rehearsed: the pool takes each as far as its worker does not see
// it, and each has been done when one looks. Belongs to the driver.
#pragma once

#include <span>
#include <vector>

#include "sidecar/worker/copy_pool.h"

namespace gantry::transport {

class RehearsedJobs {
 public:
  explicit RehearsedJobs(worker::CopyPool& pool) : pool_(pool) {}

  // As the pool's of these names.
  bool Post(int worker, uint64_t tag, std::span<const worker::CopySegment> segments);
  size_t Poll(std::span<worker::Completion> completions);

 private:
  worker::CopyPool& pool_;
  std::vector<worker::Completion> done_;
};

}  // namespace gantry::transport
