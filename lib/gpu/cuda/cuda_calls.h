// The CUDA driver's functions, bound at run time by name and by the version whose ABI is declared
// here. A function that is missing is null: its feature says so. Immutable after Load; thread-safe.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/dynamic_library.h"
#include "lib/gpu/cuda/cuda_abi.h"

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
inline constexpr int kFeatureCount = 11;

class Calls {
 public:
  // Opens the library (as dlopen takes it) and initialises the driver.
  static gantry::Result<Calls> Load(const std::string& library);

  const Functions* operator->() const { return &functions_; }
  // An error that names the missing symbol when the feature cannot be used.
  Status Require(Feature feature) const;
  std::vector<std::string> missing() const;
  // Nothing, or what the driver's `result` says about `what`.
  Status Check(Result result, std::string_view what) const;

 private:
  explicit Calls(DynamicLibrary library) : library_(std::move(library)) {}
  Status Bind();

  DynamicLibrary library_;
  Functions functions_ = {};
  std::array<std::string, kFeatureCount> missing_;  // the first missing symbol of each
};

}  // namespace gantry::gpu::cuda
