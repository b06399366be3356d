#include "sidecar/worker/process/cost_measurement.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "lib/gpu/shared/copy_kernel.h"
#include "sidecar/worker/process/pinned_pages.h"

namespace gantry::worker {
namespace {

constexpr uint64_t kBytes = 8 << 20;  // of either side
constexpr uint64_t kKernelItemBytes = gpu::copy_kernel::kShortItemBytes;
constexpr uint64_t kItemListBytes = 64 << 10;
constexpr uint64_t kBatchItemBytes = 4096;
constexpr uint64_t kBatchItems = 128;
constexpr uint64_t kRowsOfCopy = 64;
constexpr uint64_t kShortRow = 4096;
constexpr uint64_t kLongRow = 16 << 10;
constexpr uint64_t kFewCopiesOfRows = 2;
constexpr uint64_t kManyCopiesOfRows = 10;
static_assert(kBytes / kKernelItemBytes * sizeof(gpu::CopyItem) <= kItemListBytes);
static_assert(2 * kLongRow * kRowsOfCopy <= kBytes);

// Repetitions, of which the fastest counts: others may use the GPU and the processor.
constexpr int kFirstTries = 8;
constexpr int kTriesMin = 5;
constexpr milliseconds kTries{25};  // the other workers start meanwhile
// Few copies that take longer, or many that take longer than so many times few: somebody else is
// at work there.
constexpr microseconds kFewMax{1000};
constexpr double kManyMax = 2;
// While all workers hand blocks over, each takes longer than one alone: 0.85 us on H200
// (docs/decisions/0010), where this measures 0.51.
constexpr double kAllWorkers = 1.7;

uint64_t Rounded(double value) {
  return std::isfinite(value) && value >= 1 && value < 1e15 ? static_cast<uint64_t>(value + 0.5)
                                                            : std::numeric_limits<uint64_t>::max();
}

class Measurement {
 public:
  Measurement(gpu::GpuContext& context, TimePoint deadline)
      : context_(context), deadline_(deadline) {}

  Status Allocate(int peer);
  Result<MeasuredCosts> Run(bool has_peer);

 private:
  // Submits `count` copies to the stream.
  using Submit = std::function<Status(uint64_t count)>;

  // Nanoseconds of one copy among many: what a longer series takes beyond a shorter one.
  Result<double> TimeOf(const Submit& submit, uint64_t few, uint64_t many);
  Result<double> TimeOfSeries(const Submit& submit, uint64_t count);
  Status WriteList();
  Status CopyByKernel(uint64_t items);
  Status CopyBatches(uint64_t batches);
  Status CopyRows(uint64_t copies, uint64_t bytes);

  gpu::GpuContext& context_;
  const TimePoint deadline_;
  // The stream, which goes first, waits for the copies within all of these.
  std::unique_ptr<gpu::GpuMemory> own_;
  std::unique_ptr<gpu::GpuMemory> peers_;
  std::unique_ptr<PinnedPages> list_;
  gpu::DeviceAddress to_{};
  gpu::DeviceAddress from_{};
  std::vector<gpu::CopyItem> blocks_;
  std::unique_ptr<gpu::GpuEvent> mark_;
  std::unique_ptr<gpu::GpuStream> stream_;
};

Status Measurement::Allocate(int peer) {
  ASSIGN_OR_RETURN(own_, context_.Allocate(peer < 0 ? 2 * kBytes : kBytes));
  to_ = own_->range().base;
  from_ = to_ + kBytes;
  if (peer >= 0) {
    ASSIGN_OR_RETURN(peers_, context_.AllocateOn(peer, kBytes));
    from_ = peers_->range().base;
  }
  for (uint64_t at = 0; at < kBytes; at += 2 * kBatchItemBytes) {  // no two are neighbours
    blocks_.push_back({to_ + at, from_ + at, kBatchItemBytes});
  }
  ASSIGN_OR_RETURN(mark_, context_.NewEvent());
  ASSIGN_OR_RETURN(stream_, context_.NewStream());
  return {};
}

// The list is pinned for kernels alone: not every driver can do that.
Status Measurement::WriteList() {
  ASSIGN_OR_RETURN(list_,
                   PinnedPages::Create(context_, kItemListBytes, "the list of a measurement"));
  auto* const items = reinterpret_cast<gpu::CopyItem*>(list_->data());
  for (uint64_t at = 0; at < kBytes; at += kKernelItemBytes) {
    items[at / kKernelItemBytes] = {to_ + at, from_ + at, kKernelItemBytes};
  }
  return {};
}

Status Measurement::CopyByKernel(uint64_t items) {
  return stream_->CopyByKernel(list_->on_gpu(), static_cast<uint32_t>(items), kKernelItemBytes);
}

// The GPU begins with a batch when it has all of it: it copies one while the next is handed over,
// as a worker's do.
Status Measurement::CopyBatches(uint64_t batches) {
  for (uint64_t batch = 0; batch < batches; ++batch) {
    const std::span<const gpu::CopyItem> items(blocks_.data() + batch * kBatchItems, kBatchItems);
    const Status copied = stream_->CopyBatch(items);
    if (copied) continue;
    if (copied.error().code != ErrorCode::kPathUnavailable) return copied;
    for (const gpu::CopyItem& item : items) {
      RETURN_IF_ERROR(stream_->Copy(item.to, item.from, item.bytes));
    }
  }
  return {};
}

Status Measurement::CopyRows(uint64_t copies, uint64_t bytes) {
  for (uint64_t i = 0; i < copies; ++i) {
    RETURN_IF_ERROR(stream_->CopyRows({to_, from_, 2 * bytes, 2 * bytes, bytes, kRowsOfCopy}));
  }
  return {};
}

Result<double> Measurement::TimeOfSeries(const Submit& submit, uint64_t count) {
  const TimePoint begin = Clock::now();
  RETURN_IF_ERROR(submit(count));
  RETURN_IF_ERROR(stream_->Record(*mark_));
  for (;;) {
    ASSIGN_OR_RETURN(const bool reached, mark_->IsReached());
    const TimePoint now = Clock::now();
    if (reached) return static_cast<double>((now - begin).count());
    if (now >= deadline_) return Fail(ErrorCode::kDeadlineExceeded, "the GPU was not done in time");
    ::sched_yield();
  }
}

Result<double> Measurement::TimeOf(const Submit& submit, uint64_t few, uint64_t many) {
  double of_few = std::numeric_limits<double>::max();
  double of_many = of_few;
  const TimePoint until = Clock::now() + kTries;
  for (int i = 0; i < kFirstTries; ++i) {
    ASSIGN_OR_RETURN(const double took, TimeOfSeries(submit, few));
    of_few = std::min(of_few, took);
  }
  if (of_few > static_cast<double>(nanoseconds(kFewMax).count())) {
    return Fail(ErrorCode::kDeadlineExceeded, "the GPU is busy or slow");
  }
  for (int i = 0; i < kTriesMin || Clock::now() < until; ++i) {
    ASSIGN_OR_RETURN(const double took, TimeOfSeries(submit, many));
    of_many = std::min(of_many, took);
    ASSIGN_OR_RETURN(const double again, TimeOfSeries(submit, few));
    of_few = std::min(of_few, again);
  }
  const double times = static_cast<double>(many) / static_cast<double>(few);
  if (of_many > kManyMax * times * of_few) {
    return Fail(ErrorCode::kDeadlineExceeded, "the GPU is busy");
  }
  return (of_many - of_few) / static_cast<double>(many - few);
}

Result<MeasuredCosts> Measurement::Run(bool has_peer) {
  GpuCopyCosts costs = {0, 0, 0, 0, 0};
  // Within one GPU the caches would be measured: no link is in the way.
  if (has_peer && context_.LoadKernels() && WriteList()) {
    ASSIGN_OR_RETURN(const double item,
                     TimeOf([this](uint64_t n) { return CopyByKernel(n); },
                            kBytes / kKernelItemBytes / 8, kBytes / kKernelItemBytes));
    costs.kernel_mb_s = Rounded(1e3 * static_cast<double>(kKernelItemBytes) / item);
  }
  ASSIGN_OR_RETURN(const double batch, TimeOf([this](uint64_t n) { return CopyBatches(n); }, 1,
                                              blocks_.size() / kBatchItems));
  costs.block_ns = Rounded(kAllWorkers * batch / kBatchItems);
  const auto rows_of = [this](uint64_t bytes) {
    return TimeOf([this, bytes](uint64_t n) { return CopyRows(n, bytes); }, kFewCopiesOfRows,
                  kManyCopiesOfRows);
  };
  Result<double> short_rows = Fail(ErrorCode::kPathUnavailable, "there is no link");
  if (has_peer) short_rows = rows_of(kShortRow);
  if (short_rows || short_rows.error().code != ErrorCode::kPathUnavailable) {
    RETURN_IF_ERROR(short_rows);
    ASSIGN_OR_RETURN(const double long_rows, rows_of(kLongRow));
    const double byte = (long_rows - *short_rows) / kRowsOfCopy / (kLongRow - kShortRow);
    const double row = *short_rows / kRowsOfCopy - kShortRow * byte;
    costs.row_byte_fs = Rounded(1e6 * byte);
    // The engines of both GPUs of a pair copy rows, each its own; the link is one.
    costs.row_ps = Rounded(1e3 * row / 2);
  }
  MeasuredCosts measured;
  std::transform(kCostFields.begin(), kCostFields.end(), measured.begin(),
                 [&](const CostField& field) { return costs.*field.value; });
  RETURN_IF_ERROR(CheckMeasured(measured));
  return measured;
}

}  // namespace

Result<MeasuredCosts> MeasureCosts(gpu::GpuContext& context, int peer, TimePoint deadline) {
  Measurement measurement(context, deadline);
  RETURN_IF_ERROR(measurement.Allocate(peer));
  return measurement.Run(peer >= 0);
}

}  // namespace gantry::worker
