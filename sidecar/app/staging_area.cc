#include "sidecar/app/staging_area.h"

#include <string>
#include <utility>

#include "lib/base/log.h"
#include "sidecar/transport/tcp/channel/tcp_frame.h"

namespace gantry {

static_assert(SidecarConfig::kStagingBytesMin / 2 >= transport::kFramePayloadBytesMax,
              "each half has room for the largest payload that a peer may send");
static_assert(transport::kStagingSlicesAtOnce * transport::kStagingSliceBytes ==
              transport::kFramePayloadBytesMax);

Result<std::unique_ptr<StagingArea>> StagingArea::Create(const SidecarConfig& config,
                                                         CopyPath& copies,
                                                         transport::IoLoops& loops) {
  worker::WorkerPool& pool = copies.pool();
  // For a GPU that comes later the memory is there, and is pinned then.
  const Status gpus = pool.HasGpus();
  if (!gpus && !pool.asks_for_gpu() && !config.unsealed_memory) {
    return Fail(ErrorCode::kPathUnavailable,
                "no copy worker had a GPU when the sidecar started (" + gpus.error().message +
                    "); where it sees one now, restart it",
                gpus.error().hint);
  }
  if (config.staging_bytes == 0) {
    return Fail(ErrorCode::kPathUnavailable, "--staging-bytes is 0: nothing is staged");
  }
  const auto slices =
      static_cast<uint32_t>(config.staging_bytes / 2 / transport::kStagingSliceBytes);
  const uint64_t bytes = uint64_t{2} * slices * transport::kStagingSliceBytes;
  ASSIGN_OR_RETURN(auto memory, memory::StagingMemory::Create(pool, bytes));
  log::Info("memory of GPUs and unsealed memory are staged for the network", {{"bytes", bytes}});
  return std::unique_ptr<StagingArea>(new StagingArea(
      copies, std::move(memory), slices, [&loops](TimePoint when, std::function<void()> call) {
        loops.at(0).PostAt(when, std::move(call));
      }));
}

StagingArea::StagingArea(CopyPath& copies, std::unique_ptr<memory::StagingMemory> memory,
                         uint32_t slices,
                         std::function<void(TimePoint, std::function<void()>)> call_at)
    : memory_(std::move(memory)),
      copies_(
          copies.scheduler(), memory_->allocation(), [&pool = copies.pool()] { pool.WakeWaiter(); },
          std::move(call_at)),
      initiator_{transport::SlicePool(slices),
                 memory_->bytes().first(slices * transport::kStagingSliceBytes), 0, copies_,
                 memory_->allocation()},
      target_{transport::SlicePool(slices),
              memory_->bytes().subspan(slices * transport::kStagingSliceBytes),
              slices * transport::kStagingSliceBytes, copies_, memory_->allocation()} {}

metrics::StagingSample StagingArea::Sample() const {
  const transport::StagingCopier::Totals& totals = copies_.totals();
  return {memory_->bytes().size(), initiator_.slices.in_use(), target_.slices.in_use(),
          totals.bytes_from_buffers, totals.bytes_to_buffers};
}

}  // namespace gantry
