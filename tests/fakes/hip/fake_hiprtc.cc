// libhiprtc of machines without a GPU: it takes the source of the copy kernel, which alone it
// knows, as it would be compiled for the device, and refuses what the vendor's would.
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <string_view>

#include "lib/gpu/hip/hip_abi.h"
#include "lib/gpu/shared/copy_kernel_source.h"
#include "tests/fakes/gpu/fake_gpus.h"
#include "tests/fakes/hip/fake_code.h"

namespace hiprtc = gantry::gpu::hiprtc;
using gantry::fake_hip::Code;

namespace {

struct FakeProgram {
  std::string source;
  std::string log;
  Code code;
};

FakeProgram* Of(hiprtc::Program program) { return reinterpret_cast<FakeProgram*>(program); }
int FailureOf(const char* call) { return gantry::fake_gpu::FakeGpus::Instance().FailureOf(call); }

}  // namespace

extern "C" {

const char* hiprtcGetErrorString(hiprtc::Result result) {
  return result == hiprtc::kErrorCompilation ? "HIPRTC_ERROR_COMPILATION" : "HIPRTC_ERROR";
}
hiprtc::Result hiprtcCreateProgram(hiprtc::Program* program, const char* source, const char*, int,
                                   const char* const*, const char* const*) {
  if (const int failure = FailureOf("hiprtcCreateProgram"); failure != 0) return failure;
  auto* const made = new FakeProgram;
  made->source = source;
  *program = reinterpret_cast<hiprtc::Program>(made);
  return hiprtc::kSuccess;
}
hiprtc::Result hiprtcDestroyProgram(hiprtc::Program* program) {
  delete Of(*program);
  *program = nullptr;
  return hiprtc::kSuccess;
}
hiprtc::Result hiprtcCompileProgram(hiprtc::Program program, int count,
                                    const char* const* options) {
  FakeProgram& compiled = *Of(program);
  constexpr std::string_view kWarp = "-DGANTRY_WARP_THREADS=";
  for (int i = 0; i < count; ++i) {
    const std::string_view option = options[i];
    if (option.starts_with(kWarp))
      compiled.code.warp_threads = static_cast<unsigned>(std::atoi(options[i] + kWarp.size()));
  }
  const std::string_view source = compiled.source;
  const std::string entry = std::string(gantry::gpu::kCopyKernelName) + "(";
  if (FailureOf("hiprtcCompileProgram") != 0) {
    compiled.log = "copy_kernel.hip:1:1: error: the fake was told to find one";
  } else if (source.find("#include") != source.npos) {
    compiled.log = "copy_kernel.hip:1:1: fatal error: file not found";
  } else if (source.find(entry) == source.npos || compiled.code.warp_threads == 0) {
    compiled.log = "copy_kernel.hip:1:1: error: use of undeclared identifier";
  }
  return compiled.log.empty() ? hiprtc::kSuccess : hiprtc::kErrorCompilation;
}
hiprtc::Result hiprtcGetProgramLogSize(hiprtc::Program program, size_t* bytes) {
  *bytes = Of(program)->log.size() + 1;
  return hiprtc::kSuccess;
}
hiprtc::Result hiprtcGetProgramLog(hiprtc::Program program, char* log) {
  const std::string& said = Of(program)->log;
  std::memcpy(log, said.c_str(), said.size() + 1);
  return hiprtc::kSuccess;
}
hiprtc::Result hiprtcGetCodeSize(hiprtc::Program, size_t* bytes) {
  *bytes = sizeof(Code);
  return hiprtc::kSuccess;
}
hiprtc::Result hiprtcGetCode(hiprtc::Program program, char* code) {
  std::memcpy(code, &Of(program)->code, sizeof(Code));
  return hiprtc::kSuccess;
}

}  // extern "C"
