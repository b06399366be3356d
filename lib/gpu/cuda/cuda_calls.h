// The CUDA driver's functions, bound at run time by name and by the version whose ABI is declared
// here. A function that is missing is null: its feature says so. Immutable after Load; thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "lib/gpu/cuda/cuda_abi.h"
#include "lib/gpu/shared/vendor_calls.h"

namespace gantry::gpu::cuda {

// With its version: the bare name is often a toolkit's stub.
inline constexpr char kLibrary[] = "libcuda.so.1";
inline constexpr const char* kLibraries[] = {kLibrary};

// What can be missing by itself; without kCore there is no driver.
enum class Feature {
  kCore,
  kIpc,
  kVirtualMemory,
  kDmaBuf,
  kBatchCopy,
  kRowCopy,
  kHostRegister,
  kPeerAccess,
  kKernels,
  kContextLimits,
  kStreamWrites
};

class Calls : public BoundCalls<Functions, Feature> {
 public:
  // Opens the library (as dlopen takes it) and initialises the driver.
  static gantry::Result<Calls> Load(const std::string& library);

  // Nothing, or what the driver's `result` says about `what`.
  Status Check(Result result, std::string_view what) const;

 private:
  explicit Calls(DynamicLibrary library);
  Status Bind();
};

}  // namespace gantry::gpu::cuda
