// The functions of HIP, and of the HSA and HIPRTC libraries beside it, bound at run time by name. A
// function that is missing is null: its feature says so. Immutable after Load; thread-safe.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "lib/gpu/hip/hip_abi.h"
#include "lib/gpu/shared/vendor_calls.h"

namespace gantry::gpu::hip {

// By the versions of their ABI, the newest first; one without its version comes with some
// frameworks.
inline constexpr const char* kLibraries[] = {"libamdhip64.so.7", "libamdhip64.so.6",
                                             "libamdhip64.so.5", "libamdhip64.so"};
inline constexpr char kHsaLibrary[] = "libhsa-runtime64.so.1";

// What can be missing by itself; without kCore there is no driver.
enum class Feature {
  kCore,
  kUuid,
  kIpc,
  kVirtualMemory,
  kDmaBuf,
  kExternalMemory,
  kBatchCopy,
  kRowCopy,
  kHostRegister,
  kPeerAccess,
  kKernels,
  kStreamWrites
};

class Calls : public BoundCalls<Functions, Feature> {
 public:
  // Opens the library (as dlopen takes it) and initialises the runtime.
  static gantry::Result<Calls> Load(const std::string& library);
  // Whether this process has used HIP, which then has initialised the library below it.
  static bool IsInUse();

  const hsa::Functions& hsa() const { return hsa_; }
  const hiprtc::Functions& compiler() const { return compiler_; }
  // Nothing, or what the runtime's `result` says about `what`.
  Status Check(Result result, std::string_view what) const;

 private:
  explicit Calls(DynamicLibrary library);
  Status Bind();
  void BindHsa();
  void BindCompiler(const std::string& library);
  Status Start();

  std::optional<DynamicLibrary> hsa_library_;
  std::optional<DynamicLibrary> compiler_library_;
  hsa::Functions hsa_ = {};
  hiprtc::Functions compiler_ = {};
};

// For a scope within a workload's thread: an error of a call in it is none of the workload's, which
// would find it at its next look.
class LastErrorKept {
 public:
  explicit LastErrorKept(const Calls& calls)
      : calls_(calls), was_clear_(calls->peek_at_last_error() == kSuccess) {}
  LastErrorKept(const LastErrorKept&) = delete;
  LastErrorKept& operator=(const LastErrorKept&) = delete;
  ~LastErrorKept() {
    if (was_clear_) calls_->get_last_error();
  }

 private:
  const Calls& calls_;
  const bool was_clear_;
};

}  // namespace gantry::gpu::hip
