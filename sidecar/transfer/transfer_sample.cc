#include "sidecar/transfer/transfer_sample.h"

#include "sidecar/metrics/metric_labels.h"
#include "sidecar/worker/channel/gpu_copy_reason.h"

namespace gantry::engine {
namespace {

constexpr bool HaveTheirPlans() {
  for (size_t i = 0; i < transport::kGpuCopyReasons; ++i) {
    const bool by_kernel =
        transport::MeansOf(static_cast<transport::GpuCopyReason>(i)) == worker::GpuMeans::kKernel;
    if (metrics::kGpuJobKinds[i].plan != (by_kernel ? "kernel" : "engines")) return false;
  }
  return metrics::kGpuJobKinds.size() == transport::kGpuCopyReasons;
}
static_assert(HaveTheirPlans(), "the labels of the metric are in the order of the reasons");

metrics::Outcome OutcomeOf(TransferState state) {
  switch (state) {
    case TransferState::kSucceeded:
      return metrics::Outcome::kSucceeded;
    case TransferState::kCancelled:
      return metrics::Outcome::kCancelled;
    case TransferState::kExpired:
      return metrics::Outcome::kExpired;
    default:
      return metrics::Outcome::kFailed;
  }
}

}  // namespace

metrics::TransferSample SampleOf(const Transfer& transfer, TimePoint now) {
  const TransferStatus& status = transfer.admitted.status;
  metrics::TransferSample sample;
  sample.operation = status.operation;
  sample.path = status.path;
  sample.outcome = OutcomeOf(status.state);
  sample.bytes = status.bytes_moved;
  sample.descriptors_in = status.descriptors_in;
  sample.descriptors_out = status.descriptors_out;
  sample.chunks_succeeded = status.chunks_moved;
  sample.chunks_failed = status.chunks - status.chunks_moved;
  sample.chunks_retried = transfer.chunks_retried;
  if (status.gpu_copies) sample.gpu_jobs = status.gpu_copies->by_reason;
  sample.seconds = SecondsBetween(transfer.admitted.begun, now);
  sample.admit_seconds = static_cast<double>(status.timings.admit_us) / 1e6;
  sample.fence_seconds = static_cast<double>(status.timings.fence_us) / 1e6;
  sample.queue_seconds = static_cast<double>(status.timings.queue_us) / 1e6;
  sample.move_seconds = static_cast<double>(status.timings.move_us) / 1e6;
  if (transfer.stop_started) sample.quiesce_seconds = SecondsBetween(*transfer.stop_started, now);
  return sample;
}

}  // namespace gantry::engine
