#include "lib/gpu/hip/hip_compiler.h"

#include <algorithm>
#include <iterator>

namespace gantry::gpu {
namespace {

constexpr size_t kLogBytesMax = 1024;  // of what is handed on

class Program {
 public:
  explicit Program(const hiprtc::Functions& compiler) : compiler_(compiler) {}
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program() {
    if (program_ != nullptr) compiler_.destroy_program(&program_);
  }

  Status Create(const char* source, const char* name) {
    return Check(compiler_.create_program(&program_, source, name, 0, nullptr, nullptr),
                 "hiprtcCreateProgram");
  }

  Status Compile(const char* definition) {
    const char* const options[] = {"-std=c++20", "-O3", "-fno-strict-aliasing", definition};
    Status compiled = Check(compiler_.compile_program(program_, std::size(options), options),
                            "hiprtcCompileProgram");
    if (!compiled) compiled.error().message += ": " + Log();
    return compiled;
  }

  Result<std::string> Code() {
    size_t bytes = 0;
    RETURN_IF_ERROR(Check(compiler_.get_code_size(program_, &bytes), "hiprtcGetCodeSize"));
    std::string code(bytes, '\0');
    RETURN_IF_ERROR(Check(compiler_.get_code(program_, code.data()), "hiprtcGetCode"));
    return code;
  }

 private:
  Status Check(hiprtc::Result result, const char* what) const {
    if (result == hiprtc::kSuccess) return {};
    const char* const text = compiler_.get_error_string(result);
    return Fail(ErrorCode::kDeviceError,
                std::string(what) + ": " + (text == nullptr ? std::to_string(result) : text),
                "ROCm's compiler is libhiprtc.so with libamd_comgr.so: install them beside the "
                "runtime, in one version; it writes files to TMPDIR, by default /tmp");
  }

  std::string Log() const {
    size_t bytes = 0;
    if (compiler_.get_program_log_size(program_, &bytes) != hiprtc::kSuccess) return {};
    std::string log(bytes, '\0');
    if (compiler_.get_program_log(program_, log.data()) != hiprtc::kSuccess) return {};
    log.resize(std::min({log.find('\0'), log.size(), kLogBytesMax}));
    return log;
  }

  const hiprtc::Functions& compiler_;
  hiprtc::Program program_ = nullptr;
};

}  // namespace

Result<std::string> CompileForCurrentDevice(const hip::Calls& calls, const char* source,
                                            const char* name, const std::string& definition) {
  Program program(calls.compiler());
  RETURN_IF_ERROR(program.Create(source, name));
  RETURN_IF_ERROR(program.Compile(definition.c_str()));
  return program.Code();
}

}  // namespace gantry::gpu
