#include "lib/gpu/cuda/cuda_calls.h"

#include <cstddef>
#include <iterator>

namespace gantry::gpu::cuda {
namespace {

constexpr const char* kFeatureNames[] = {"core",
                                         "ipc",
                                         "virtual memory",
                                         "dma-buf",
                                         "batch copy",
                                         "row copy",
                                         "host registration",
                                         "peer access",
                                         "kernels",
                                         "context limits",
                                         "stream writes"};

// Looks a function up with the ABI that it had in a version (12080: CUDA 12.8).
using GetProcAddress = Result (*)(const char* symbol, void** function, int version, uint64_t flags,
                                  int* status);

template <typename Function>
void** Slot(Function*& function) {
  return reinterpret_cast<void**>(&function);
}

constexpr Symbol SymbolOf(const char* name, int version, Feature feature, size_t offset) {
  return {name, static_cast<size_t>(feature), offset, version};
}
using enum Feature;
static_assert(std::size(kFeatureNames) == static_cast<size_t>(kStreamWrites) + 1);
constexpr Symbol kSymbols[] = {
    SymbolOf("cuDriverGetVersion", 2020, kCore, offsetof(Functions, driver_get_version)),
    SymbolOf("cuGetErrorName", 6000, kCore, offsetof(Functions, get_error_name)),
    SymbolOf("cuGetErrorString", 6000, kCore, offsetof(Functions, get_error_string)),
    SymbolOf("cuDeviceGetCount", 2000, kCore, offsetof(Functions, device_get_count)),
    SymbolOf("cuDeviceGet", 2000, kCore, offsetof(Functions, device_get)),
    SymbolOf("cuDeviceGetName", 2000, kCore, offsetof(Functions, device_get_name)),
    SymbolOf("cuDeviceGetUuid", 11040, kCore, offsetof(Functions, device_get_uuid)),
    SymbolOf("cuDeviceGetPCIBusId", 4010, kCore, offsetof(Functions, device_get_pci_bus_id)),
    SymbolOf("cuDeviceTotalMem", 3020, kCore, offsetof(Functions, device_total_mem)),
    SymbolOf("cuDeviceGetAttribute", 2000, kCore, offsetof(Functions, device_get_attribute)),
    SymbolOf("cuDevicePrimaryCtxRetain", 7000, kCore, offsetof(Functions, primary_ctx_retain)),
    SymbolOf("cuDevicePrimaryCtxRelease", 11000, kCore, offsetof(Functions, primary_ctx_release)),
    SymbolOf("cuCtxPushCurrent", 4000, kCore, offsetof(Functions, ctx_push_current)),
    SymbolOf("cuCtxPopCurrent", 4000, kCore, offsetof(Functions, ctx_pop_current)),
    SymbolOf("cuMemGetInfo", 3020, kCore, offsetof(Functions, mem_get_info)),
    SymbolOf("cuMemAlloc", 3020, kCore, offsetof(Functions, mem_alloc)),
    SymbolOf("cuMemFree", 3020, kCore, offsetof(Functions, mem_free)),
    SymbolOf("cuPointerGetAttributes", 7000, kCore, offsetof(Functions, pointer_get_attributes)),
    SymbolOf("cuMemGetAddressRange", 3020, kCore, offsetof(Functions, mem_get_address_range)),
    SymbolOf("cuMemcpyAsync", 4000, kCore, offsetof(Functions, memcpy_async)),
    SymbolOf("cuMemcpyHtoDAsync", 3020, kCore, offsetof(Functions, memcpy_htod_async)),
    SymbolOf("cuMemcpyDtoHAsync", 3020, kCore, offsetof(Functions, memcpy_dtoh_async)),
    SymbolOf("cuThreadExchangeStreamCaptureMode", 10010, kCore,
             offsetof(Functions, thread_exchange_stream_capture_mode)),
    SymbolOf("cuMemsetD8Async", 3020, kCore, offsetof(Functions, memset_async)),
    SymbolOf("cuStreamCreate", 2000, kCore, offsetof(Functions, stream_create)),
    SymbolOf("cuStreamDestroy", 4000, kCore, offsetof(Functions, stream_destroy)),
    SymbolOf("cuStreamSynchronize", 2000, kCore, offsetof(Functions, stream_synchronize)),
    SymbolOf("cuEventCreate", 2000, kCore, offsetof(Functions, event_create)),
    SymbolOf("cuEventDestroy", 4000, kCore, offsetof(Functions, event_destroy)),
    SymbolOf("cuEventRecord", 2000, kCore, offsetof(Functions, event_record)),
    SymbolOf("cuEventQuery", 2000, kCore, offsetof(Functions, event_query)),
    SymbolOf("cuEventSynchronize", 2000, kCore, offsetof(Functions, event_synchronize)),
    SymbolOf("cuIpcGetMemHandle", 4010, kIpc, offsetof(Functions, ipc_get_mem_handle)),
    SymbolOf("cuIpcOpenMemHandle", 11000, kIpc, offsetof(Functions, ipc_open_mem_handle)),
    SymbolOf("cuIpcCloseMemHandle", 4010, kIpc, offsetof(Functions, ipc_close_mem_handle)),
    SymbolOf("cuMemAddressReserve", 10020, kVirtualMemory,
             offsetof(Functions, mem_address_reserve)),
    SymbolOf("cuMemAddressFree", 10020, kVirtualMemory, offsetof(Functions, mem_address_free)),
    SymbolOf("cuMemCreate", 10020, kVirtualMemory, offsetof(Functions, mem_create)),
    SymbolOf("cuMemMap", 10020, kVirtualMemory, offsetof(Functions, mem_map)),
    SymbolOf("cuMemUnmap", 10020, kVirtualMemory, offsetof(Functions, mem_unmap)),
    SymbolOf("cuMemRelease", 10020, kVirtualMemory, offsetof(Functions, mem_release)),
    SymbolOf("cuMemSetAccess", 10020, kVirtualMemory, offsetof(Functions, mem_set_access)),
    SymbolOf("cuMemRetainAllocationHandle", 11000, kVirtualMemory,
             offsetof(Functions, mem_retain_allocation_handle)),
    SymbolOf("cuMemExportToShareableHandle", 10020, kVirtualMemory,
             offsetof(Functions, mem_export_to_shareable_handle)),
    SymbolOf("cuMemImportFromShareableHandle", 10020, kVirtualMemory,
             offsetof(Functions, mem_import_from_shareable_handle)),
    SymbolOf("cuMemGetHandleForAddressRange", 11070, kDmaBuf,
             offsetof(Functions, mem_get_handle_for_address_range)),
    SymbolOf("cuMemcpy2DAsync", 3020, kRowCopy, offsetof(Functions, memcpy_2d_async)),
    SymbolOf("cuMemHostRegister", 6050, kHostRegister, offsetof(Functions, mem_host_register)),
    SymbolOf("cuMemHostUnregister", 4000, kHostRegister, offsetof(Functions, mem_host_unregister)),
    SymbolOf("cuMemHostGetDevicePointer", 3020, kHostRegister,
             offsetof(Functions, mem_host_get_device_pointer)),
    SymbolOf("cuDeviceCanAccessPeer", 4000, kPeerAccess,
             offsetof(Functions, device_can_access_peer)),
    SymbolOf("cuCtxEnablePeerAccess", 4000, kPeerAccess, offsetof(Functions, enable_peer_access)),
    SymbolOf("cuModuleLoadData", 2000, kKernels, offsetof(Functions, module_load_data)),
    SymbolOf("cuModuleUnload", 2000, kKernels, offsetof(Functions, module_unload)),
    SymbolOf("cuModuleGetFunction", 2000, kKernels, offsetof(Functions, module_get_function)),
    SymbolOf("cuLaunchKernel", 4000, kKernels, offsetof(Functions, launch_kernel)),
    SymbolOf("cuCtxSetLimit", 3010, kContextLimits, offsetof(Functions, ctx_set_limit)),
    // Its first ABI, which a module parameter had to enable, ended with CUDA 11.7.
    SymbolOf("cuStreamWriteValue64", 11070, kStreamWrites,
             offsetof(Functions, stream_write_value_64)),
    SymbolOf("cuStreamIsCapturing", 10000, kStreamWrites, offsetof(Functions, stream_is_capturing)),
    SymbolOf("cuStreamGetCtx", 9020, kStreamWrites, offsetof(Functions, stream_get_ctx)),
    SymbolOf("cuStreamGetId", 12000, kStreamWrites, offsetof(Functions, stream_get_id)),
    SymbolOf("cuCtxGetCurrent", 4000, kStreamWrites, offsetof(Functions, ctx_get_current)),
    SymbolOf("cuCtxGetDevice", 2000, kStreamWrites, offsetof(Functions, ctx_get_device)),
    SymbolOf("cuCtxGetId", 12000, kStreamWrites, offsetof(Functions, ctx_get_id)),
};
static_assert(std::size(kSymbols) + 2 ==
              sizeof(Functions) / sizeof(void*));  // a batch copy has two

}  // namespace

gantry::Result<Calls> Calls::Load(const std::string& library) {
  ASSIGN_OR_RETURN(DynamicLibrary opened, DynamicLibrary::Open(library));
  Calls calls(std::move(opened));
  RETURN_IF_ERROR(calls.Bind());
  return calls;
}

Calls::Calls(DynamicLibrary library)
    : BoundCalls(std::move(library), kSymbols,
                 {"the NVIDIA driver", "update the driver of this node", kFeatureNames}) {}

Status Calls::Bind() {
  constexpr char kTooOld[] = "update the NVIDIA driver of this node to one of CUDA 12 or later";
  Result (*init)(unsigned flags) = nullptr;
  GetProcAddress get_proc_address = nullptr;
  auto found_both = library_.Bind("cuInit", &init);
  if (found_both) found_both = library_.Bind("cuGetProcAddress_v2", &get_proc_address);
  if (!found_both) {
    return Fail(ErrorCode::kDeviceError, std::move(found_both).error().message, kTooOld);
  }
  const auto look_up = [&](const char* name, int version) -> void* {
    void* function = nullptr;
    int status = 0;
    if (get_proc_address(name, &function, version, 0, &status) != kSuccess || status != 0) {
      return nullptr;
    }
    return function;
  };
  BindAll([&](const Symbol& symbol) { return look_up(symbol.name, symbol.version); });
  if (functions_.driver_get_version != nullptr) functions_.driver_get_version(&version_);
  // Its signature changed: each version gets its own.
  const char* const batch = "cuMemcpyBatchAsync";
  const bool is_new = version_ >= 13000;
  void** const slot =
      is_new ? Slot(functions_.memcpy_batch_13000) : Slot(functions_.memcpy_batch_12080);
  *slot = look_up(batch, is_new ? 13000 : 12080);
  if (*slot == nullptr) Miss(Feature::kBatchCopy, batch);
  RETURN_IF_ERROR(missing_.RequireAll(static_cast<size_t>(Feature::kCore), kTooOld));
  if (const Result result = init(0); result != kSuccess) {
    auto error = Check(result, "cuInit").error();
    if (result == kNoDevice) error.code = ErrorCode::kPathUnavailable;
    error.hint =
        result == kNoDevice
            ? "no GPU is visible to this process: its device nodes are not in the container"
            : "the driver is installed but does not work here: see nvidia-smi; it needs /proc and "
              "/dev/nvidia* of this container";
    return Fail(std::move(error));
  }
  return Check(functions_.driver_get_version(&version_), "cuDriverGetVersion");
}

Status Calls::Check(Result result, std::string_view what) const {
  if (result == kSuccess) return {};
  const char* name = nullptr;
  const char* text = nullptr;
  functions_.get_error_name(result, &name);
  functions_.get_error_string(result, &text);
  return Fail(ErrorOfResult(result, what, name, text));
}

}  // namespace gantry::gpu::cuda
