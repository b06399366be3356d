// libcuda.so.1 of machines without a GPU: kernels. It knows one, the copy kernel, and runs its own
// source, compiled for the host, at every position of the grid.
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>

#include "lib/gpu/copy_kernel.h"
#include "lib/gpu/copy_kernel_source.h"
#include "tests/fakes/cuda/fake_context.h"
#include "tests/fakes/cuda/fake_stream.h"

namespace gantry::fake_cuda {
namespace {

namespace copy_kernel = gpu::copy_kernel;

constexpr cuda::Result kInvalidPtx = 218;
constexpr cuda::Result kInvalidHandle = 400;
constexpr cuda::Result kSymbolNotFound = 500;
constexpr cuda::Result kIllegalAddress = 700;
constexpr cuda::Result kMisalignedAddress = 716;
constexpr unsigned kLanes = 32;

// A module has one function, for which the same pointer stands.
struct FakeModule {
  const FakeContext* context;
};
std::mutex modules_mutex;
std::set<const FakeModule*> modules;  // that are loaded

bool IsLoadedHere(const void* module) {
  const std::lock_guard lock(modules_mutex);
  const auto found = modules.find(static_cast<const FakeModule*>(module));
  return found != modules.end() && (*found)->context == current.back();
}

// Memory as a kernel of a context reaches it: whatever it may not follow is an error, after which
// nothing is touched.
class KernelMemory {
 public:
  explicit KernelMemory(const FakeContext& context) : context_(context) {}
  cuda::Result error() const { return error_; }

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
    if (error_ != cuda::kSuccess) return false;
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
  cuda::Result error_ = cuda::kSuccess;
};

struct Launch {
  uint64_t warps = 0;
  uint64_t items = 0;
  uint32_t count = 0;
  uint64_t longest = 0;
};

void RunCopyKernel(FakeContext& context, const Launch& launch) {
  KernelMemory memory(context);
  copy_kernel::Position at;
  at.lanes = kLanes;
  at.warps = launch.warps;
  // In an order that nobody may rely on.
  for (at.warp = launch.warps; at.warp-- > 0;) {
    for (at.lane = 0; at.lane < at.lanes; ++at.lane)
      copy_kernel::CopyItems(memory, at, launch.items, launch.count, launch.longest);
  }
  if (memory.error() != cuda::kSuccess) context.error = memory.error();
}

}  // namespace
}  // namespace gantry::fake_cuda

using namespace gantry::fake_cuda;
namespace cuda = gantry::gpu::cuda;

extern "C" {

cuda::Result cuModuleLoadData(cuda::Module* module, const void* image) {
  FAKE_CALL_IN_CONTEXT(cuModuleLoadData);
  const std::string entry = std::string(".entry ") + gantry::gpu::kCopyKernelName + "(";
  if (std::string_view(static_cast<const char*>(image)).find(entry) == std::string_view::npos) {
    return kInvalidPtx;
  }
  const std::lock_guard lock(modules_mutex);
  const auto* made = new FakeModule{current.back()};
  modules.insert(made);
  *module = reinterpret_cast<cuda::Module>(const_cast<FakeModule*>(made));
  return cuda::kSuccess;
}
cuda::Result cuModuleUnload(cuda::Module module) {
  FAKE_CALL_IN_CONTEXT(cuModuleUnload);
  if (!IsLoadedHere(module)) return kInvalidHandle;
  const std::lock_guard lock(modules_mutex);
  const auto* unloaded = reinterpret_cast<const FakeModule*>(module);
  modules.erase(unloaded);
  delete unloaded;
  return cuda::kSuccess;
}
cuda::Result cuModuleGetFunction(cuda::Function* function, cuda::Module module, const char* name) {
  FAKE_CALL_IN_CONTEXT(cuModuleGetFunction);
  if (!IsLoadedHere(module)) return kInvalidHandle;
  if (std::string_view(name) != gantry::gpu::kCopyKernelName) return kSymbolNotFound;
  *function = reinterpret_cast<cuda::Function>(module);
  return cuda::kSuccess;
}
cuda::Result cuLaunchKernel(cuda::Function function, unsigned grid_x, unsigned grid_y,
                            unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,
                            unsigned, cuda::Stream stream, void** arguments, void**) {
  FAKE_CALL_IN_CONTEXT(cuLaunchKernel);
  if (!IsLoadedHere(function)) return kInvalidHandle;
  if (grid_x == 0 || grid_y != 1 || grid_z != 1 || block_x == 0 || block_x % kLanes != 0 ||
      block_x > copy_kernel::kBlockThreads || block_y != 1 || block_z != 1) {
    return cuda::kInvalidValue;
  }
  Launch launch;
  launch.warps = uint64_t{grid_x} * (block_x / kLanes);
  // The arguments now, as the vendor's driver; what they point to when it is the launch's turn.
  std::memcpy(&launch.items, arguments[0], sizeof(launch.items));
  std::memcpy(&launch.count, arguments[1], sizeof(launch.count));
  std::memcpy(&launch.longest, arguments[2], sizeof(launch.longest));
  Of(stream)->Submit([context = current.back(), launch] { RunCopyKernel(*context, launch); });
  return cuda::kSuccess;
}

}  // extern "C"
