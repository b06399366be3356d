// How ShmTransport feeds workers that copy between two busy GPUs, in virtual time: the transport is
// the real one, the workers are models of what was measured on H100 (docs/decisions/0016). It
// compares ways of giving jobs out; it is no measurement.
//
//   feed_simulation [workers] [milliseconds that batches come back late] [transfers at a time]
//                   [milliseconds of every 300 in which batches are handed over ten times slower]
//                   [pairs of ids side by side, each one block of 32 KiB in every layer and no row]
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sidecar/copy/shm_transport.h"
#include "tests/fakes/driven_copy_pool.h"
#include "tests/fakes/fake_copy_pool.h"
#include "tests/fakes/test_arena.h"

namespace gantry::transport {
namespace {

using worker::Completion;
using worker::CopySegment;

// Bytes a microsecond, and microseconds.
constexpr double kRowsWritten = 197e3;  // by the engines of the GPU that writes, alone
constexpr double kRowsRead = 180e3;
constexpr double kRowsOfBoth = 312e3;
constexpr double kLink = 396e3;
constexpr double kBlockOfBatch = 0.9;  // to hand one over
constexpr double kRowsComeBack = 20;
constexpr double kBetweenTransfers = 150;  // of one caller
constexpr double kStep = 5;
// What was seen on machines where, presumably, somebody else keeps the way to the GPUs busy.
constexpr double kSlowEvery = 300e3;
constexpr double kSlower = 10;

constexpr uint64_t kBlockBytes = 16 << 10;
constexpr uint32_t kIds = 256;
constexpr uint32_t kLayers = 64;
constexpr uint64_t kTransferBytes = kBlockBytes * kIds * kLayers;
constexpr int kRounds = 400;

double now_us = 0;
TimePoint Now() {
  return TimePoint(milliseconds(100'000)) + nanoseconds(static_cast<int64_t>(1e3 * now_us));
}

class ModelPool final : public worker::DrivenCopyPool {
 public:
  ModelPool(int workers, double batches_late_us, double slow_us)
      : late_us_(batches_late_us), slow_us_(slow_us), workers_(static_cast<size_t>(workers)) {}

  int worker_count() const override { return static_cast<int>(workers_.size()); }
  int gpu_of(int worker) const override { return worker % 2; }
  bool reaches(int /*worker*/, int /*gpu*/) const override { return true; }
  size_t free_slots(int /*worker*/) const override { return 4096; }
  size_t free_places(int /*worker*/) const override { return 65536; }
  bool Post(int worker, uint64_t tag, std::span<const CopySegment> segments) override {
    Job job = {tag, 0, 0, 0, now_us};
    for (const CopySegment& segment : segments) {
      const auto bytes = static_cast<double>(segment.length * segment.count);
      const bool by_rows = !segment.one_by_one && segment.places.empty();
      (by_rows ? job.rows : job.batch) += bytes;
      job.blocks += by_rows ? 0 : segment.count;
    }
    job.batch_rate = job.blocks > 0 ? job.batch / job.blocks / kBlockOfBatch : 0;
    workers_[static_cast<size_t>(worker)].jobs.push_back(job);
    return true;
  }
  size_t Poll(std::span<Completion> completions) override {
    size_t taken = 0;
    for (size_t i = 0; i < workers_.size(); ++i) {
      auto& back = workers_[i].coming_back;
      for (; taken < completions.size() && !back.empty() && back.front().at <= now_us;
           back.pop_front()) {
        completions[taken].tag = back.front().tag;
        completions[taken].copy_nanoseconds = static_cast<uint64_t>(1e3 * back.front().took);
        completions[taken++].worker = static_cast<int>(i);
      }
    }
    return taken;
  }

  double moved_by(int worker) const { return workers_[static_cast<size_t>(worker)].moved; }

  void Advance() {
    std::vector<double> rates;
    double sum = 0;
    const bool both = RowsOn(0) && RowsOn(1);
    for (size_t i = 0; i < workers_.size(); ++i) {
      rates.push_back(workers_[i].jobs.empty() ? 0 : RateOf(i, both));
      sum += rates.back();
    }
    const double share = sum > kLink ? kLink / sum : 1;
    for (size_t i = 0; i < workers_.size(); ++i) Work(&workers_[i], rates[i] * share * kStep);
    now_us += kStep;
  }

 private:
  struct Job {
    uint64_t tag = 0;
    double rows = 0;  // bytes that are left, of which the batch comes first
    double batch = 0;
    uint32_t blocks = 0;  // of the batch
    double posted = 0;
    double batch_rate = 0;
  };
  struct Worker {
    std::deque<Job> jobs;
    struct Back {
      double at = 0;
      uint64_t tag = 0;
      double took = 0;
    };
    std::deque<Back> coming_back;
    double last_back = 0;
    double moved = 0;
  };

  bool RowsOn(size_t gpu) const {
    for (size_t i = gpu; i < workers_.size(); i += 2) {
      if (!workers_[i].jobs.empty() && workers_[i].jobs.front().batch == 0) return true;
    }
    return false;
  }
  // There is one worker of each GPU that hands rows over.
  double RateOf(size_t worker, bool both) const {
    const Job& job = workers_[worker].jobs.front();
    if (job.batch > 0) {
      const bool slow = std::fmod(now_us + slow_us_, kSlowEvery) < slow_us_;
      return job.batch_rate / (slow ? kSlower : 1);
    }
    const double alone = worker % 2 == 0 ? kRowsWritten : kRowsRead;
    return both ? alone * kRowsOfBoth / (kRowsWritten + kRowsRead) : alone;
  }
  void Work(Worker* worker, double bytes) {
    if (worker->jobs.empty()) return;
    Job& job = worker->jobs.front();
    double& left = job.batch > 0 ? job.batch : job.rows;
    bytes = std::min(bytes, left);
    worker->moved += bytes;
    left -= bytes;
    if (job.batch + job.rows > 0) return;
    const double at = now_us + (job.blocks == 0 ? kRowsComeBack : late_us_);
    worker->coming_back.push_back({at, job.tag, at - std::max(job.posted, worker->last_back)});
    worker->last_back = at;
    worker->jobs.pop_front();
  }

  const double late_us_;
  const double slow_us_;
  std::vector<Worker> workers_;
};

class Simulation {
 public:
  Simulation(int workers, double late_ms, int at_a_time, double slow_ms, uint32_t loose)
      : workers_(workers),
        loose_(loose),
        late_ms_(late_ms),
        slow_ms_(slow_ms),
        pool_(workers, 1e3 * late_ms, 1e3 * slow_ms),
        callers_(static_cast<size_t>(at_a_time)) {
    options_.gpu_copies = GpuCopyPolicy::kEngines;
    options_.now = &Now;
    transport_ = std::make_unique<ShmTransport>(options_, pool_);
  }

  void Run() {
    const size_t transfers = kRounds * callers_.size();
    while (ended_ < transfers) {
      for (Caller& caller : callers_) Begin(&caller, transfers);
      std::vector<uint64_t> attention;
      while (transport_->Poll(&attention)) {
      }
      for (Caller& caller : callers_) End(&caller);
      pool_.Advance();
    }
    const auto bytes = static_cast<double>(transfers * kTransferBytes);
    std::printf(
        "%d workers, batches %.1f ms late, slow for %.0f of 300 ms, %zu at a time, %u pairs of ids"
        " in no row: %.0f GB/s, %.2f ms each; workers:",
        workers_, late_ms_, slow_ms_, callers_.size(), loose_, bytes / now_us / 1e3,
        spent_ / static_cast<double>(transfers) / 1e3);
    for (int worker = 0; worker < workers_; ++worker) {
      std::printf(" %.0f", pool_.moved_by(worker) / now_us / 1e3);
    }
    std::printf("\n");
  }

 private:
  struct Caller {
    std::unique_ptr<Operation> transfer;
    double began = 0;
    double next = 0;
  };

  std::shared_ptr<const memory::MappedAllocation> MemoryOf(int gpu) {
    memory::AllocationSource source;
    source.fd = std::make_shared<UniqueFd>(arena_.Fd());
    source.size = arena_.size();
    source.writable = true;
    source.kind = wire::MemoryKind::kGpu;
    source.gpu.form = wire::GpuExport::kPiece;
    source.gpu.device_uuid = std::to_string(gpu);
    source.exporter = "a workload";
    return *memory::MappedAllocation::Create(mapper_, source);
  }
  std::shared_ptr<const MovePlan> Plan() {
    auto plan = std::make_shared<MovePlan>();
    plan->local = {MemoryOf(0)};
    plan->remote = {{MemoryOf(1)}};
    BlockPair layers;
    layers.unit_bytes = layers.local_stride = layers.remote_stride = kBlockBytes;
    layers.rows = kLayers;
    layers.local_row_step = layers.remote_row_step = 4 * kIds * kBlockBytes;
    std::vector<BlockRun> ids;
    for (uint32_t i = 0; i < kIds - 2 * loose_; ++i) ids.push_back({2 * i, 2 * i, 1, i});
    plan->segments.AddRuns({layers}, std::move(ids));
    std::vector<BlockPair> each(loose_ > 0 ? kLayers : 0, layers);
    for (uint32_t layer = 0; layer < each.size(); ++layer) {
      each[layer].rows = 1;
      each[layer].local_base = each[layer].remote_base = layer * layers.local_row_step;
    }
    std::vector<BlockRun> longer;
    for (uint32_t i = kIds - 2 * loose_; i < kIds; i += 2) longer.push_back({2 * i, 2 * i, 2, i});
    if (loose_ > 0) plan->segments.AddRuns(std::move(each), std::move(longer));
    plan->bytes = kTransferBytes;
    return plan;
  }
  void Begin(Caller* caller, size_t transfers) {
    if (caller->transfer || begun_ == transfers || now_us < caller->next) return;
    caller->transfer = transport_->Start(Plan(), 0, ++begun_);
    caller->began = now_us;
  }
  void End(Caller* caller) {
    if (!caller->transfer || !caller->transfer->finished()) return;
    caller->transfer.reset();
    spent_ += now_us - caller->began;
    caller->next = now_us + kBetweenTransfers;
    ++ended_;
  }

  const int workers_;
  const uint32_t loose_;
  const double late_ms_;
  const double slow_ms_;
  testing::TestArena arena_{65536};
  worker::FakeCopyPool mapper_;
  ModelPool pool_;
  ShmOptions options_;
  std::unique_ptr<ShmTransport> transport_;
  std::vector<Caller> callers_;
  size_t begun_ = 0;
  size_t ended_ = 0;
  double spent_ = 0;
};

}  // namespace
}  // namespace gantry::transport

int main(int argc, char** argv) {
  const int workers = argc > 1 ? std::atoi(argv[1]) : 8;
  const double late_ms = argc > 2 ? std::atof(argv[2]) : 2;
  const int at_a_time = argc > 3 ? std::atoi(argv[3]) : 4;
  const double slow_ms = argc > 4 ? std::atof(argv[4]) : 0;
  const int loose = argc > 5 ? std::atoi(argv[5]) : 0;
  if (workers < 2 || late_ms < 0 || at_a_time < 1 || slow_ms < 0 || loose < 0 || loose > 64) {
    std::fprintf(stderr,
                 "feed_simulation [workers, 2 at least] [milliseconds] [transfers] [milliseconds]"
                 " [pairs, 64 at most]\n");
    return 2;
  }
  gantry::transport::Simulation(workers, late_ms, at_a_time, slow_ms, static_cast<uint32_t>(loose))
      .Run();
}
