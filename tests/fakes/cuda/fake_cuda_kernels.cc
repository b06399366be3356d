// libcuda.so.1 of machines without a GPU: kernels.
#include <string>
#include <string_view>

#include "lib/gpu/shared/copy_kernel_source.h"
#include "tests/fakes/cuda/fake_cuda.h"
#include "tests/fakes/gpu/fake_kernels.h"

namespace gantry::fake_cuda {
namespace {

constexpr cuda::Result kInvalidPtx = 218;
constexpr unsigned kLanes = 32;

bool IsLoadedHere(const void* module) { return fake_gpu::IsLoaded(module, *current.back()); }

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
  *module = static_cast<cuda::Module>(gantry::fake_gpu::LoadModule(*current.back(), kLanes));
  return cuda::kSuccess;
}
cuda::Result cuModuleUnload(cuda::Module module) {
  FAKE_CALL_IN_CONTEXT(cuModuleUnload);
  if (!IsLoadedHere(module)) return cuda::kInvalidHandle;
  gantry::fake_gpu::UnloadModule(module);
  return cuda::kSuccess;
}
cuda::Result cuModuleGetFunction(cuda::Function* function, cuda::Module module, const char* name) {
  FAKE_CALL_IN_CONTEXT(cuModuleGetFunction);
  if (!IsLoadedHere(module)) return cuda::kInvalidHandle;
  if (std::string_view(name) != gantry::gpu::kCopyKernelName) return kNotFound;
  *function = reinterpret_cast<cuda::Function>(module);
  return cuda::kSuccess;
}
cuda::Result cuLaunchKernel(cuda::Function function, unsigned grid_x, unsigned grid_y,
                            unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,
                            unsigned, cuda::Stream stream, void** arguments, void**) {
  FAKE_CALL_IN_CONTEXT(cuLaunchKernel);
  if (!IsLoadedHere(function)) return cuda::kInvalidHandle;
  const gantry::fake_gpu::Launch launch = {
      {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, arguments};
  return gantry::fake_gpu::LaunchCopyKernel(
      function, *current.back(), *Of(stream), launch,
      [](FakeContext& context, cuda::Result error) { context.error = error; });
}

}  // extern "C"
