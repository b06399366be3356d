// Host memory of a copy worker's own that its GPU reaches: pages that are pinned once, at one
// address for the host and another for the GPU. One thread.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "lib/gpu/shared/gpu_driver.h"

namespace gantry::worker {

class PinnedPages {
 public:
  // Whole pages. `purpose`: of the memory, for who reads of it in an error or in the log.
  static Result<std::unique_ptr<PinnedPages>> Create(gpu::GpuContext& context, size_t bytes,
                                                     std::string_view purpose);
  PinnedPages(const PinnedPages&) = delete;
  PinnedPages& operator=(const PinnedPages&) = delete;
  // The driver forgets them before they are unmapped. What it does not let go of stays mapped: at
  // these addresses must be nothing that the GPU does not know. REQUIRES that no work uses them.
  ~PinnedPages();

  std::byte* data() const { return data_; }
  gpu::DeviceAddress on_gpu() const { return on_gpu_->range().base; }

 private:
  PinnedPages(std::byte* data, size_t bytes, std::string_view purpose)
      : data_(data), bytes_(bytes), purpose_(purpose) {}

  std::byte* const data_;
  const size_t bytes_;
  const std::string purpose_;
  std::unique_ptr<gpu::GpuHostMemory> on_gpu_;  // null: not pinned
};

}  // namespace gantry::worker
