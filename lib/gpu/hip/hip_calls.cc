#include "lib/gpu/hip/hip_calls.h"

#include <cstddef>
#include <iterator>
#include <utility>

namespace gantry::gpu::hip {
namespace {

constexpr const char* kFeatureNames[] = {"core",           "device identity", "ipc",
                                         "virtual memory", "dma-buf",         "import of dma-bufs",
                                         "batch copy",     "row copy",        "host registration",
                                         "peer access",    "kernels",         "stream writes"};

constexpr Symbol SymbolOf(const char* name, Feature feature, size_t offset) {
  return {name, static_cast<size_t>(feature), offset};
}
using enum Feature;
static_assert(std::size(kFeatureNames) == static_cast<size_t>(kStreamWrites) + 1);
constexpr Symbol kSymbols[] = {
    SymbolOf("hipRuntimeGetVersion", kCore, offsetof(Functions, runtime_get_version)),
    SymbolOf("hipGetErrorName", kCore, offsetof(Functions, get_error_name)),
    SymbolOf("hipGetErrorString", kCore, offsetof(Functions, get_error_string)),
    SymbolOf("hipGetLastError", kCore, offsetof(Functions, get_last_error)),
    SymbolOf("hipPeekAtLastError", kCore, offsetof(Functions, peek_at_last_error)),
    SymbolOf("hipGetDeviceCount", kCore, offsetof(Functions, device_get_count)),
    SymbolOf("hipGetDevice", kCore, offsetof(Functions, get_device)),
    SymbolOf("hipSetDevice", kCore, offsetof(Functions, set_device)),
    SymbolOf("hipDeviceGetName", kCore, offsetof(Functions, device_get_name)),
    SymbolOf("hipDeviceGetPCIBusId", kCore, offsetof(Functions, device_get_pci_bus_id)),
    SymbolOf("hipDeviceTotalMem", kCore, offsetof(Functions, device_total_mem)),
    SymbolOf("hipDeviceGetAttribute", kCore, offsetof(Functions, device_get_attribute)),
    SymbolOf("hipMemGetInfo", kCore, offsetof(Functions, mem_get_info)),
    SymbolOf("hipMalloc", kCore, offsetof(Functions, mem_alloc)),
    SymbolOf("hipFree", kCore, offsetof(Functions, mem_free)),
    SymbolOf("hipPointerGetAttribute", kCore, offsetof(Functions, pointer_get_attribute)),
    SymbolOf("hipMemGetAddressRange", kCore, offsetof(Functions, mem_get_address_range)),
    SymbolOf("hipMemcpyAsync", kCore, offsetof(Functions, memcpy_async)),
    SymbolOf("hipMemsetAsync", kCore, offsetof(Functions, memset_async)),
    SymbolOf("hipThreadExchangeStreamCaptureMode", kCore,
             offsetof(Functions, thread_exchange_stream_capture_mode)),
    SymbolOf("hipStreamCreateWithFlags", kCore, offsetof(Functions, stream_create)),
    SymbolOf("hipStreamDestroy", kCore, offsetof(Functions, stream_destroy)),
    SymbolOf("hipStreamSynchronize", kCore, offsetof(Functions, stream_synchronize)),
    SymbolOf("hipEventCreateWithFlags", kCore, offsetof(Functions, event_create)),
    SymbolOf("hipEventDestroy", kCore, offsetof(Functions, event_destroy)),
    SymbolOf("hipEventRecord", kCore, offsetof(Functions, event_record)),
    SymbolOf("hipEventQuery", kCore, offsetof(Functions, event_query)),
    SymbolOf("hipEventSynchronize", kCore, offsetof(Functions, event_synchronize)),
    SymbolOf("hipDeviceGetUuid", kUuid, offsetof(Functions, device_get_uuid)),
    SymbolOf("hipIpcGetMemHandle", kIpc, offsetof(Functions, ipc_get_mem_handle)),
    SymbolOf("hipIpcOpenMemHandle", kIpc, offsetof(Functions, ipc_open_mem_handle)),
    SymbolOf("hipIpcCloseMemHandle", kIpc, offsetof(Functions, ipc_close_mem_handle)),
    SymbolOf("hipMemAddressReserve", kVirtualMemory, offsetof(Functions, mem_address_reserve)),
    SymbolOf("hipMemAddressFree", kVirtualMemory, offsetof(Functions, mem_address_free)),
    SymbolOf("hipMemCreate", kVirtualMemory, offsetof(Functions, mem_create)),
    SymbolOf("hipMemMap", kVirtualMemory, offsetof(Functions, mem_map)),
    SymbolOf("hipMemUnmap", kVirtualMemory, offsetof(Functions, mem_unmap)),
    SymbolOf("hipMemRelease", kVirtualMemory, offsetof(Functions, mem_release)),
    SymbolOf("hipMemSetAccess", kVirtualMemory, offsetof(Functions, mem_set_access)),
    SymbolOf("hipMemRetainAllocationHandle", kVirtualMemory,
             offsetof(Functions, mem_retain_allocation_handle)),
    SymbolOf("hipMemExportToShareableHandle", kVirtualMemory,
             offsetof(Functions, mem_export_to_shareable_handle)),
    SymbolOf("hipMemImportFromShareableHandle", kVirtualMemory,
             offsetof(Functions, mem_import_from_shareable_handle)),
    SymbolOf("hipImportExternalMemory", kExternalMemory,
             offsetof(Functions, import_external_memory)),
    SymbolOf("hipExternalMemoryGetMappedBuffer", kExternalMemory,
             offsetof(Functions, external_memory_get_mapped_buffer)),
    SymbolOf("hipDestroyExternalMemory", kExternalMemory,
             offsetof(Functions, destroy_external_memory)),
    SymbolOf("hipMemcpyBatchAsync", kBatchCopy, offsetof(Functions, memcpy_batch_async)),
    SymbolOf("hipMemcpy2DAsync", kRowCopy, offsetof(Functions, memcpy_2d_async)),
    SymbolOf("hipHostRegister", kHostRegister, offsetof(Functions, mem_host_register)),
    SymbolOf("hipHostUnregister", kHostRegister, offsetof(Functions, mem_host_unregister)),
    SymbolOf("hipHostGetDevicePointer", kHostRegister,
             offsetof(Functions, mem_host_get_device_pointer)),
    SymbolOf("hipDeviceCanAccessPeer", kPeerAccess, offsetof(Functions, device_can_access_peer)),
    SymbolOf("hipDeviceEnablePeerAccess", kPeerAccess, offsetof(Functions, enable_peer_access)),
    SymbolOf("hipModuleLoadData", kKernels, offsetof(Functions, module_load_data)),
    SymbolOf("hipModuleUnload", kKernels, offsetof(Functions, module_unload)),
    SymbolOf("hipModuleGetFunction", kKernels, offsetof(Functions, module_get_function)),
    SymbolOf("hipModuleLaunchKernel", kKernels, offsetof(Functions, launch_kernel)),
    SymbolOf("hipStreamWriteValue64", kStreamWrites, offsetof(Functions, stream_write_value_64)),
    SymbolOf("hipStreamIsCapturing", kStreamWrites, offsetof(Functions, stream_is_capturing)),
    SymbolOf("hipStreamGetDevice", kStreamWrites, offsetof(Functions, stream_get_device)),
    SymbolOf("hipStreamGetId", kStreamWrites, offsetof(Functions, stream_get_id)),
};
static_assert(std::size(kSymbols) == sizeof(Functions) / sizeof(void*));

// "libhiprtc.so.7" stands beside "libamdhip64.so.7"; the one without a version beside the like.
std::string CompilerBeside(const std::string& library) {
  constexpr std::string_view kName = "libamdhip64.so";
  const size_t at = library.rfind(kName);
  if (at == library.npos) return "libhiprtc.so";
  return library.substr(0, at) + "libhiprtc.so" + library.substr(at + kName.size());
}

}  // namespace

gantry::Result<Calls> Calls::Load(const std::string& library) {
  ASSIGN_OR_RETURN(DynamicLibrary opened, DynamicLibrary::Open(library));
  Calls calls(std::move(opened));
  RETURN_IF_ERROR(calls.Bind());
  RETURN_IF_ERROR(calls.Start());
  calls.BindHsa();
  calls.BindCompiler(CompilerBeside(library));
  return calls;
}

bool Calls::IsInUse() {
  const auto library = DynamicLibrary::OpenLoaded(kHsaLibrary);
  hsa::Status (*get_info)(int attribute, void* value) = nullptr;
  if (!library || !library->Bind("hsa_system_get_info", &get_info)) return false;
  uint64_t version = 0;
  return get_info(hsa::kSystemInfoVersionMajor, &version) != hsa::kErrorNotInitialized;
}

Calls::Calls(DynamicLibrary library)
    : BoundCalls(std::move(library), kSymbols,
                 {"the HIP runtime", "update ROCm where this process has it from", kFeatureNames}) {
}

Status Calls::Bind() {
  BindAll([&](const Symbol& symbol) {
    void (*found)() = nullptr;
    return library_.Bind(symbol.name, &found) ? reinterpret_cast<void*>(found) : nullptr;
  });
  return missing_.RequireAll(static_cast<size_t>(Feature::kCore), "install ROCm 5.2 or later");
}

Status Calls::Start() {
  Result (*init)(unsigned flags) = nullptr;
  if (auto found = library_.Bind("hipInit", &init); !found) {
    return Fail(ErrorCode::kDeviceError, std::move(found).error().message,
                "install ROCm 5.2 or later");
  }
  if (const Result result = init(0); result != kSuccess) {
    auto error = Check(result, "hipInit").error();
    if (result == kNoDevice) error.code = ErrorCode::kPathUnavailable;
    error.hint = result == kNoDevice
                     ? "no GPU is visible to this process: /dev/kfd or its render node is not in "
                       "the container, or may not be opened by this user (groups video and render)"
                     : "the runtime is installed but does not work here: see rocminfo";
    return Fail(std::move(error));
  }
  return Check(functions_.runtime_get_version(&version_), "hipRuntimeGetVersion");
}

void Calls::BindHsa() {
  auto opened = DynamicLibrary::Open(kHsaLibrary);
  if (!opened) return Miss(Feature::kDmaBuf, kHsaLibrary);
  hsa_library_ = *std::move(opened);
  const auto bind = [&](const char* name, auto** function) {
    if (!hsa_library_->Bind(name, function)) Miss(Feature::kDmaBuf, name);
  };
  bind("hsa_system_get_info", &hsa_.system_get_info);
  bind("hsa_status_string", &hsa_.status_string);
  bind("hsa_amd_pointer_info", &hsa_.amd_pointer_info);
  bind("hsa_amd_portable_export_dmabuf", &hsa_.amd_portable_export_dmabuf);
  bool supported = false;
  if (Require(Feature::kDmaBuf) &&
      (hsa_.system_get_info(hsa::kSystemInfoDmaBufSupported, &supported) != hsa::kSuccess ||
       !supported)) {
    Miss(Feature::kDmaBuf, "support of dma-bufs in the kernel's amdgpu module");
  }
}

void Calls::BindCompiler(const std::string& library) {
  auto opened = DynamicLibrary::Open(library);
  if (opened) compiler_library_ = *std::move(opened);
  // Before ROCm 7 the library of the runtime has them, too.
  const DynamicLibrary& found = compiler_library_ ? *compiler_library_ : library_;
  const auto bind = [&](const char* name, auto** function) {
    if (!found.Bind(name, function)) Miss(Feature::kKernels, library);
  };
  bind("hiprtcGetErrorString", &compiler_.get_error_string);
  bind("hiprtcCreateProgram", &compiler_.create_program);
  bind("hiprtcDestroyProgram", &compiler_.destroy_program);
  bind("hiprtcCompileProgram", &compiler_.compile_program);
  bind("hiprtcGetProgramLogSize", &compiler_.get_program_log_size);
  bind("hiprtcGetProgramLog", &compiler_.get_program_log);
  bind("hiprtcGetCodeSize", &compiler_.get_code_size);
  bind("hiprtcGetCode", &compiler_.get_code);
}

Status Calls::Check(Result result, std::string_view what) const {
  if (result == kSuccess) return {};
  return Fail(ErrorOfResult(result, what, functions_.get_error_name(result),
                            functions_.get_error_string(result)));
}

}  // namespace gantry::gpu::hip
