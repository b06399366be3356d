// Random transfers, completions and lost workers, once with rehearsals in between and once without:
// what is posted, in which order and by what means, and what a caller sees of it, is the same.
#include <random>

#include "tests/sidecar/transport/gpu_feed_fixture.h"

namespace gantry::transport {
namespace {

constexpr int kSeeds = 300, kSteps = 120;
constexpr size_t kOperationsMax = 20;

TimePoint shown_time;

class RehearsalDifferenceTest : public GpuFeedTest {
 protected:
  // Between the host and GPUs in each way, plain or in rows.
  std::shared_ptr<MovePlan> Any(uint32_t kind, uint32_t blocks) {
    switch (kind % 6) {
      case 0:
        return Plan(host_, host_, blocks);
      case 1:
        return Plan(first_, first_, blocks);
      case 2:
        return Plan(first_, second_, blocks);
      case 3:
        return Plan(host_, second_, blocks);
      case 4:
        return Plan(second_, second_, blocks);
      default:
        return Rows(std::min(blocks, 120u));
    }
  }

  // All that can be seen of what a seed does.
  std::string Run(unsigned seed, bool rehearses);
  uint64_t rehearsed() const { return rehearsed_; }

 private:
  using Memory = std::shared_ptr<const memory::MappedAllocation>;
  std::shared_ptr<MovePlan> Rows(uint32_t blocks) const {
    auto plan = std::make_shared<MovePlan>();
    plan->local = {first_};
    plan->remote = {{second_}};
    BlockPair pair;
    pair.unit_bytes = pair.local_stride = pair.remote_stride = 1;
    pair.rows = 32;
    pair.local_row_step = pair.remote_row_step = 2000;
    std::vector<BlockRun> runs;
    for (uint32_t i = 0; i < blocks; ++i) runs.push_back({i, i, 1, i});
    plan->segments.AddRuns({pair}, std::move(runs));
    plan->bytes = uint64_t{blocks} * pair.rows;
    return plan;
  }

  Memory host_ = Map(kHost), first_ = Map(kGpu, 0), second_ = Map(kGpu, 1);
  uint64_t rehearsed_ = 0;  // that found a transport at rest
};

// One transport with its workers; what it does is written down.
class Scene {
 public:
  explicit Scene(unsigned seed)
      : pool_(1 + static_cast<int>(seed % 5)), transport_(Options(seed), pool_) {
    for (size_t worker = 0; worker < pool_.homes.size(); ++worker) {
      pool_.homes[worker] = static_cast<int>(worker % 2);
    }
  }

  bool Rehearse(const std::shared_ptr<MovePlan>& plan, int priority) {
    return transport_.Rehearse(plan, priority) != nullptr;
  }
  void Start(std::shared_ptr<MovePlan> plan, int priority) {
    if (operations_.size() >= kOperationsMax) return;
    operations_.push_back(transport_.Start(std::move(plan), priority, ++token_));
  }
  void Stop(size_t which) {
    if (!operations_.empty()) operations_[which % operations_.size()]->Stop();
  }
  void Lose(uint32_t worker) {
    pool_.Lose(static_cast<int>(worker % static_cast<uint32_t>(pool_.worker_count())));
  }
  void Finish(bool kernels, nanoseconds taken) {
    for (int worker = 0; worker < pool_.worker_count(); ++worker) {
      pool_.Finish(worker, kernels, taken);
    }
  }
  void Poll() { transport_.Poll(&attention_); }
  void ComeToRest() {
    for (int i = 0; i < 5'000 && !operations_.empty(); ++i) {
      Poll();
      pool_.FinishOneEach();
      WriteEnds();
    }
    EXPECT_TRUE(operations_.empty());
    Poll();
  }
  void Write() {
    for (const auto& jobs : pool_.jobs) {
      log_ += "|";
      for (const HandPool::Job& job : jobs) {
        Add(job.bytes, job.means == GpuMeans::kKernel, job.one_by_one, job.destinations.size());
        if (!job.destinations.empty()) Add(job.destinations.front());
      }
    }
    Add(transport_.Unattended().count(), transport_.DevicesWork(), transport_.EnginesWillCopy({0}),
        transport_.EnginesWillCopy({1}));
    pool_.roused.clear();
    transport_.RouseFor(1000);
    transport_.Foresee();
    for (const int worker : pool_.roused) Add(worker);
    for (const uint64_t token : attention_) Add(token);
    attention_.clear();
    WriteEnds();
    log_ += "\n";
  }
  const std::string& log() const { return log_; }

 private:
  static ShmOptions Options(unsigned seed) {
    ShmOptions options;
    options.now = [] { return shown_time; };
    if (seed % 7 == 3) options.gpu_copies = GpuCopyPolicy::kKernel;
    if (seed % 7 == 4) options.gpu_copies = GpuCopyPolicy::kEngines;
    return options;
  }
  void Add(auto... values) { ((log_ += std::to_string(values) + " "), ...); }
  void WriteEnds() {
    std::erase_if(operations_, [this](const auto& operation) {
      if (!operation->finished()) return false;
      const Progress& is = operation->progress();
      Add(is.bytes, is.chunks, is.workers, is.gpu_jobs_by_kernel, is.gpu_jobs_by_engine);
      return true;
    });
  }

  HandPool pool_;
  ShmTransport transport_;
  std::vector<std::unique_ptr<Operation>> operations_;
  std::vector<uint64_t> attention_;
  uint64_t token_ = 0;
  std::string log_;
};

std::string RehearsalDifferenceTest::Run(unsigned seed, bool rehearses) {
  std::minstd_rand random(seed + 1), of_rehearsals(seed + 99);
  shown_time = TimePoint(std::chrono::seconds(100));
  Scene scene(seed);
  const auto rehearse = [&] {
    for (auto left = rehearses ? of_rehearsals() % 3 : 0; left > 0; --left) {
      const auto kind = static_cast<uint32_t>(of_rehearsals());
      const auto blocks = static_cast<uint32_t>(1 + of_rehearsals() % 128);
      rehearsed_ += scene.Rehearse(Any(kind, blocks), static_cast<int>(kind % 3)) ? 1 : 0;
    }
  };
  for (int step = 0; step < kSteps; ++step) {
    shown_time += microseconds(random() % 4000);
    rehearse();
    const auto a = static_cast<uint32_t>(random() >> 4), b = static_cast<uint32_t>(random() >> 4);
    const auto what = (random() >> 4) % 13;
    if (what < 2) {
      scene.Start(Any(a, 1 + b % 1500), static_cast<int>(a % 3));
    } else if (what == 2) {
      scene.Stop(a);
    } else if (what == 3) {
      scene.Lose(a);
    } else if (what < 8) {
      scene.Finish(a % 7 != 0, microseconds(b % 5 == 0 ? 6000 : 3));
    } else if (what == 8) {
      scene.ComeToRest();
    }
    rehearse();
    if (what % 2 == 0) scene.Poll();
    rehearse();
    scene.Write();
  }
  scene.ComeToRest();
  return scene.log();
}

TEST_F(RehearsalDifferenceTest, ThereIsNone) {
  for (unsigned seed = 0; seed < kSeeds; ++seed) {
    ASSERT_EQ(Run(seed, true), Run(seed, false)) << "seed " << seed;
  }
  EXPECT_GT(rehearsed(), 10'000U) << "most of them found no rest";
}

}  // namespace
}  // namespace gantry::transport
