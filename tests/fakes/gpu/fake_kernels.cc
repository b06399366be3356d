#include "tests/fakes/gpu/fake_kernels.h"

#include <chrono>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <set>

#include "lib/gpu/shared/copy_kernel.h"

namespace gantry::fake_gpu {
namespace {

namespace copy_kernel = gpu::copy_kernel;

struct FakeModule {
  const FakeContext* context = nullptr;
  unsigned lanes = 0;
};
std::mutex modules_mutex;
std::set<const FakeModule*>& Modules() {
  static auto* const modules = new std::set<const FakeModule*>;  // that are loaded
  return *modules;
}

// Memory as a kernel of a context reaches it: whatever it may not follow is an error, after which
// nothing is touched.
class KernelMemory {
 public:
  explicit KernelMemory(const FakeContext& context) : context_(context) {}
  Result error() const { return error_; }

  template <typename T>
  T Load(uint64_t address) {
    T value = {};
    if (MayTouch(address, sizeof(T)))
      std::memcpy(&value, reinterpret_cast<const void*>(address), sizeof(T));
    return value;
  }
  template <typename T>
  void Store(uint64_t address, T value) {
    if (MayTouch(address, sizeof(T)))
      std::memcpy(reinterpret_cast<void*>(address), &value, sizeof(T));
  }

 private:
  static bool IsWithin(const Block& block, uint64_t address, uint64_t bytes) {
    return address - block.base < block.size && block.size - (address - block.base) >= bytes;
  }
  bool MayTouch(uint64_t address, uint64_t bytes) {
    if (error_ != kSuccess) return false;
    if (address % bytes != 0) {
      error_ = kMisalignedAddress;
      return false;
    }
    const auto behind = followed_.upper_bound(address);
    if (behind != followed_.begin() && IsWithin(std::prev(behind)->second, address, bytes)) {
      return true;
    }
    const auto block = Memory().Around(address);
    if (!block || !IsWithin(*block, address, bytes) || !MayFollow(context_, *block)) {
      error_ = kIllegalAddress;
      return false;
    }
    followed_[block->base] = *block;
    return true;
  }

  const FakeContext& context_;
  std::map<uint64_t, Block> followed_;  // by base
  Result error_ = kSuccess;
};

struct Run {
  unsigned lanes = 0;
  uint64_t warps = 0;
  uint64_t items = 0;
  uint32_t count = 0;
  uint64_t longest = 0;
};

void RunCopyKernel(FakeContext& context, const Run& run, OnFault on_fault) {
  KernelMemory memory(context);
  copy_kernel::Position at;
  at.lanes = run.lanes;
  at.warps = run.warps;
  // In an order that nobody may rely on.
  for (at.warp = run.warps; at.warp-- > 0;) {
    for (at.lane = 0; at.lane < at.lanes; ++at.lane)
      copy_kernel::CopyItems(memory, at, run.items, run.count, run.longest);
  }
  if (memory.error() != kSuccess) on_fault(context, memory.error());
}

// Takes the time of the items and moves nothing.
void RunAtSpeed(FakeContext& context, const Run& run, double speed, OnFault on_fault) {
  const auto begin = std::chrono::steady_clock::now();
  KernelMemory memory(context);
  uint64_t bytes = 0;
  for (uint64_t i = 0; i < run.count; ++i) {
    bytes += memory.Load<uint64_t>(run.items + i * copy_kernel::kItemBytes + 16);
  }
  if (memory.error() != kSuccess) on_fault(context, memory.error());
  AwaitTime(begin, static_cast<double>(bytes) / speed);
}

}  // namespace

void* LoadModule(const FakeContext& context, unsigned lanes) {
  const std::lock_guard lock(modules_mutex);
  auto* const made = new FakeModule{&context, lanes};
  Modules().insert(made);
  return made;
}

bool IsLoaded(const void* module, const FakeContext& context) {
  const std::lock_guard lock(modules_mutex);
  const auto found = Modules().find(static_cast<const FakeModule*>(module));
  return found != Modules().end() && (*found)->context == &context;
}

void UnloadModule(const void* module) {
  const std::lock_guard lock(modules_mutex);
  const auto* unloaded = static_cast<const FakeModule*>(module);
  Modules().erase(unloaded);
  delete unloaded;
}

Result LaunchCopyKernel(const void* module, FakeContext& context, FakeStream& stream,
                        const Launch& launch, OnFault on_fault) {
  const auto& [grid, block, arguments] = launch;
  Run run;
  run.lanes = static_cast<const FakeModule*>(module)->lanes;
  if (grid[0] == 0 || grid[1] != 1 || grid[2] != 1 || block[0] == 0 || block[0] % run.lanes != 0 ||
      block[0] > copy_kernel::kBlockThreads || block[1] != 1 || block[2] != 1) {
    return kInvalidValue;
  }
  run.warps = uint64_t{grid[0]} * (block[0] / run.lanes);
  // The arguments now, as the vendors' drivers; what they point to when it is the launch's turn.
  std::memcpy(&run.items, arguments[0], sizeof(run.items));
  std::memcpy(&run.count, arguments[1], sizeof(run.count));
  std::memcpy(&run.longest, arguments[2], sizeof(run.longest));
  if (const double speed = Gpus().SpeedOf("kernel"); speed > 0) {
    constexpr double kNoDelay = 1;
    stream.Submit([&context, run, speed, on_fault] { RunAtSpeed(context, run, speed, on_fault); },
                  kNoDelay);
    return kSuccess;
  }
  stream.Submit([&context, run, on_fault] { RunCopyKernel(context, run, on_fault); });
  return kSuccess;
}

}  // namespace gantry::fake_gpu
