#include "lib/gpu/loaded_gpu_pointers.h"

#include <atomic>
#include <memory>
#include <span>
#include <string>

#include "lib/base/dynamic_library.h"
#include "lib/gpu/cuda/cuda_pointers.h"
#include "lib/gpu/hip/hip_pointers.h"

namespace gantry::gpu {
namespace {

struct LoadedVendor {
  std::span<const char* const> libraries;  // by their versions
  bool (*is_in_use)(const DynamicLibrary& library);
  Result<std::unique_ptr<GpuPointers>> (*load)(const std::string& library);
};
constexpr LoadedVendor kLoadedVendors[] = {
    {cuda::kLibraries, CudaPointers::IsInUse, LoadPointers<CudaPointers>},
    {hip::kLibraries, HipPointers::IsInUse, LoadPointers<HipPointers>}};

// The name of the one that this process uses; empty, and why, when it uses none.
std::string LibraryInUse(const LoadedVendor& vendor, std::string* why_none) {
  std::string said;
  for (const char* const library : vendor.libraries) {
    const auto loaded = DynamicLibrary::OpenLoaded(library);
    // To initialise it here would spoil the GPUs for children that the workload forks later.
    if (loaded && vendor.is_in_use(*loaded)) return library;
    if (loaded) {
      said = std::string(library) + " is loaded and not in use";
    } else if (said.empty()) {
      said = loaded.error().message;
    }
  }
  *why_none += (why_none->empty() ? "" : "; ") + said;
  return {};
}

}  // namespace

Result<const GpuPointers*> LoadedGpuPointers() {
  // No lock: a child of fork would find it taken for ever.
  static std::atomic<const GpuPointers*> kept = nullptr;
  if (const GpuPointers* pointers = kept.load()) return pointers;
  std::string said;
  for (const LoadedVendor& vendor : kLoadedVendors) {
    const std::string library = LibraryInUse(vendor, &said);
    if (library.empty()) continue;
    ASSIGN_OR_RETURN(std::unique_ptr<const GpuPointers> pointers, vendor.load(library));
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
