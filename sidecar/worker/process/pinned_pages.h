// A copy worker's own pinned host memory, with a host address and a GPU address. Used by one
// thread.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "lib/gpu/shared/gpu_driver.h"

namespace gantry::worker {

class PinnedPages {
 public:
  // Allocates whole pages. `purpose` names the memory in errors and in the log.
  static Result<std::unique_ptr<PinnedPages>> Create(gpu::GpuContext& context, size_t bytes,
                                                     std::string_view purpose);
  PinnedPages(const PinnedPages&) = delete;
  PinnedPages& operator=(const PinnedPages&) = delete;
  // Unpins, then unmaps. Pages that the driver does not unpin stay mapped, so that the GPU never
  // sees other memory at these addresses. REQUIRES that no work uses them.
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
