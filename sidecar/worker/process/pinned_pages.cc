#include "sidecar/worker/process/pinned_pages.h"

#include <sys/mman.h>

#include <cerrno>

#include "lib/base/log.h"
#include "sidecar/memory/pinned_memory.h"

namespace gantry::worker {

Result<std::unique_ptr<PinnedPages>> PinnedPages::Create(gpu::GpuContext& context, size_t bytes,
                                                         std::string_view purpose) {
  void* const memory =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return Fail(SystemError(
        ErrorCode::kResourceExhausted,
        "mmap of " + std::to_string(bytes) + " bytes for " + std::string(purpose), errno));
  }
  std::unique_ptr<PinnedPages> pages(
      new PinnedPages(static_cast<std::byte*>(memory), bytes, purpose));
  ASSIGN_OR_RETURN(pages->on_gpu_, context.RegisterHost(memory, bytes));
  RETURN_IF_ERROR(memory::CheckPinned(pages->on_gpu_->range(), bytes));
  return pages;
}

PinnedPages::~PinnedPages() {
  const Status forgotten = on_gpu_ == nullptr ? Status() : on_gpu_->Unregister();
  if (!forgotten) {
    log::Error("memory for " + purpose_ + " stays mapped: the GPU's driver does not let go of it",
               {{"bytes", bytes_}, {"error", forgotten.error()}});
    return;
  }
  if (::munmap(data_, bytes_) != 0) {
    log::Error("munmap failed", {{"bytes", bytes_}, {"of", purpose_}, {"errno", errno}});
  }
}

}  // namespace gantry::worker
