#include "lib/gpu/hip/hip_calls.h"

namespace gantry::gpu::hip {
namespace {

constexpr std::array<const char*, kFeatureCount> kFeatureNames = {
    "core",           "device identity", "ipc",
    "virtual memory", "dma-buf",         "import of dma-bufs",
    "batch copy",     "row copy",        "host registration",
    "peer access",    "kernels",         "stream writes"};

struct Symbol {
  const char* name;
  Feature feature;
  void** function;
};

template <typename Function>
void** Slot(Function*& function) {
  return reinterpret_cast<void**>(&function);
}

std::vector<Symbol> SymbolsOf(Functions& f) {
  using enum Feature;
  return {
      {"hipRuntimeGetVersion", kCore, Slot(f.runtime_get_version)},
      {"hipGetErrorName", kCore, Slot(f.get_error_name)},
      {"hipGetErrorString", kCore, Slot(f.get_error_string)},
      {"hipGetLastError", kCore, Slot(f.get_last_error)},
      {"hipPeekAtLastError", kCore, Slot(f.peek_at_last_error)},
      {"hipGetDeviceCount", kCore, Slot(f.get_device_count)},
      {"hipGetDevice", kCore, Slot(f.get_device)},
      {"hipSetDevice", kCore, Slot(f.set_device)},
      {"hipDeviceGetName", kCore, Slot(f.device_get_name)},
      {"hipDeviceGetPCIBusId", kCore, Slot(f.device_get_pci_bus_id)},
      {"hipDeviceTotalMem", kCore, Slot(f.device_total_mem)},
      {"hipDeviceGetAttribute", kCore, Slot(f.device_get_attribute)},
      {"hipMemGetInfo", kCore, Slot(f.mem_get_info)},
      {"hipMalloc", kCore, Slot(f.malloc)},
      {"hipFree", kCore, Slot(f.free)},
      {"hipPointerGetAttribute", kCore, Slot(f.pointer_get_attribute)},
      {"hipMemGetAddressRange", kCore, Slot(f.mem_get_address_range)},
      {"hipMemcpyAsync", kCore, Slot(f.memcpy_async)},
      {"hipMemsetAsync", kCore, Slot(f.memset_async)},
      {"hipThreadExchangeStreamCaptureMode", kCore, Slot(f.thread_exchange_stream_capture_mode)},
      {"hipStreamCreateWithFlags", kCore, Slot(f.stream_create_with_flags)},
      {"hipStreamDestroy", kCore, Slot(f.stream_destroy)},
      {"hipStreamSynchronize", kCore, Slot(f.stream_synchronize)},
      {"hipEventCreateWithFlags", kCore, Slot(f.event_create_with_flags)},
      {"hipEventDestroy", kCore, Slot(f.event_destroy)},
      {"hipEventRecord", kCore, Slot(f.event_record)},
      {"hipEventQuery", kCore, Slot(f.event_query)},
      {"hipEventSynchronize", kCore, Slot(f.event_synchronize)},
      {"hipDeviceGetUuid", kUuid, Slot(f.device_get_uuid)},
      {"hipIpcGetMemHandle", kIpc, Slot(f.ipc_get_mem_handle)},
      {"hipIpcOpenMemHandle", kIpc, Slot(f.ipc_open_mem_handle)},
      {"hipIpcCloseMemHandle", kIpc, Slot(f.ipc_close_mem_handle)},
      {"hipMemAddressReserve", kVirtualMemory, Slot(f.mem_address_reserve)},
      {"hipMemAddressFree", kVirtualMemory, Slot(f.mem_address_free)},
      {"hipMemCreate", kVirtualMemory, Slot(f.mem_create)},
      {"hipMemMap", kVirtualMemory, Slot(f.mem_map)},
      {"hipMemUnmap", kVirtualMemory, Slot(f.mem_unmap)},
      {"hipMemRelease", kVirtualMemory, Slot(f.mem_release)},
      {"hipMemSetAccess", kVirtualMemory, Slot(f.mem_set_access)},
      {"hipMemRetainAllocationHandle", kVirtualMemory, Slot(f.mem_retain_allocation_handle)},
      {"hipMemExportToShareableHandle", kVirtualMemory, Slot(f.mem_export_to_shareable_handle)},
      {"hipMemImportFromShareableHandle", kVirtualMemory, Slot(f.mem_import_from_shareable_handle)},
      {"hipImportExternalMemory", kExternalMemory, Slot(f.import_external_memory)},
      {"hipExternalMemoryGetMappedBuffer", kExternalMemory,
       Slot(f.external_memory_get_mapped_buffer)},
      {"hipDestroyExternalMemory", kExternalMemory, Slot(f.destroy_external_memory)},
      {"hipMemcpyBatchAsync", kBatchCopy, Slot(f.memcpy_batch_async)},
      {"hipMemcpy2DAsync", kRowCopy, Slot(f.memcpy_2d_async)},
      {"hipHostRegister", kHostRegister, Slot(f.host_register)},
      {"hipHostUnregister", kHostRegister, Slot(f.host_unregister)},
      {"hipHostGetDevicePointer", kHostRegister, Slot(f.host_get_device_pointer)},
      {"hipDeviceCanAccessPeer", kPeerAccess, Slot(f.device_can_access_peer)},
      {"hipDeviceEnablePeerAccess", kPeerAccess, Slot(f.device_enable_peer_access)},
      {"hipModuleLoadData", kKernels, Slot(f.module_load_data)},
      {"hipModuleUnload", kKernels, Slot(f.module_unload)},
      {"hipModuleGetFunction", kKernels, Slot(f.module_get_function)},
      {"hipModuleLaunchKernel", kKernels, Slot(f.module_launch_kernel)},
      {"hipStreamWriteValue64", kStreamWrites, Slot(f.stream_write_value_64)},
      {"hipStreamIsCapturing", kStreamWrites, Slot(f.stream_is_capturing)},
      {"hipStreamGetDevice", kStreamWrites, Slot(f.stream_get_device)},
      {"hipStreamGetId", kStreamWrites, Slot(f.stream_get_id)},
  };
}

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

void Calls::Miss(Feature feature, const std::string& what) {
  std::string& missing = missing_[static_cast<size_t>(feature)];
  if (missing.empty()) missing = what;
}

Status Calls::Bind() {
  for (const Symbol& symbol : SymbolsOf(functions_)) {
    void (*found)() = nullptr;
    if (library_.Bind(symbol.name, &found)) {
      *symbol.function = reinterpret_cast<void*>(found);
    } else {
      Miss(symbol.feature, symbol.name);
    }
  }
  const std::string& lacks = missing_[static_cast<size_t>(Feature::kCore)];
  if (lacks.empty()) return {};
  return Fail(ErrorCode::kDeviceError, "the HIP runtime has no " + lacks,
              "install ROCm 5.2 or later");
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
  if (missing_[static_cast<size_t>(Feature::kDmaBuf)].empty() &&
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

Status Calls::Require(Feature feature) const {
  const auto index = static_cast<size_t>(feature);
  if (missing_[index].empty()) return {};
  return Fail(
      ErrorCode::kPathUnavailable,
      "the HIP runtime has no " + missing_[index] + ", which " + kFeatureNames[index] + " needs",
      "update ROCm where this process has it from");
}

std::vector<std::string> Calls::missing() const {
  std::vector<std::string> said;
  for (size_t index = 0; index < missing_.size(); ++index) {
    if (!missing_[index].empty())
      said.push_back(std::string(kFeatureNames[index]) + ": " + missing_[index]);
  }
  return said;
}

Status Calls::Check(Result result, std::string_view what) const {
  if (result == kSuccess) return {};
  const char* const name = functions_.get_error_name(result);
  const char* const text = functions_.get_error_string(result);
  return Fail(result == kOutOfMemory ? ErrorCode::kResourceExhausted : ErrorCode::kDeviceError,
              std::string(what) + ": " +
                  (name == nullptr ? "error " + std::to_string(result) : std::string(name)) +
                  (text == nullptr ? "" : " (" + std::string(text) + ")"));
}

}  // namespace gantry::gpu::hip
