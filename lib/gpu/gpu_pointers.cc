#include "lib/gpu/gpu_pointers.h"

#include <atomic>
#include <memory>
#include <string>

#include "lib/base/dynamic_library.h"
#include "lib/gpu/cuda_pointers.h"

namespace gantry::gpu {
namespace {

struct Vendor {
  const char* library;
  bool (*is_in_use)(const DynamicLibrary& library);
  Result<std::unique_ptr<GpuPointers>> (*load)(const std::string& library);
};
constexpr Vendor kVendors[] = {{cuda::kLibrary, CudaPointers::IsInUse, CudaPointers::Load}};

}  // namespace

Result<const GpuPointers*> LoadedGpuPointers() {
  // No lock: a child of fork would find it taken for ever.
  static std::atomic<const GpuPointers*> kept = nullptr;
  if (const GpuPointers* pointers = kept.load()) return pointers;
  std::string said;
  for (const Vendor& vendor : kVendors) {
    const auto loaded = DynamicLibrary::OpenLoaded(vendor.library);
    if (!loaded) {
      said += (said.empty() ? "" : "; ") + loaded.error().message;
      continue;
    }
    // To initialise it here would spoil the GPUs for children that the workload forks later.
    if (!vendor.is_in_use(*loaded)) {
      said +=
          (said.empty() ? "" : "; ") + std::string(vendor.library) + " is loaded and not in use";
      continue;
    }
    ASSIGN_OR_RETURN(std::unique_ptr<const GpuPointers> pointers, vendor.load(vendor.library));
    const GpuPointers* first = nullptr;  // of another thread at the same time
    if (!kept.compare_exchange_strong(first, pointers.get())) return first;
    return pointers.release();
  }
  return Fail(ErrorCode::kNotFound, "no GPU driver: " + said);
}

Result<std::unique_ptr<GpuWorkloadDevice>> OpenWorkloadDevice(int ordinal) {
  const auto pointers = LoadedGpuPointers();
  if (pointers) return (*pointers)->OpenWorkloadDevice(ordinal);
  if (pointers.error().code != ErrorCode::kNotFound) return Fail(pointers.error());
  return Fail(ErrorCode::kPathUnavailable,
              "this process uses no GPU (" + pointers.error().message + ")",
              "begin to use it before, for example by allocating memory on it", "device");
}

}  // namespace gantry::gpu
