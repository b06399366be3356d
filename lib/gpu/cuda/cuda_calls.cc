#include "lib/gpu/cuda/cuda_calls.h"

#include <span>

namespace gantry::gpu::cuda {
namespace {

constexpr std::array<const char*, kFeatureCount> kFeatureNames = {"core",
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

struct Symbol {
  const char* name;
  int version;  // that brought the ABI declared in Functions
  Feature feature;
  void** function;
};

template <typename Function>
void** Slot(Function*& function) {
  return reinterpret_cast<void**>(&function);
}

// NOLINTNEXTLINE(readability-function-size): a table, one line for each function of the driver
std::vector<Symbol> SymbolsOf(Functions& f) {
  using enum Feature;
  return {
      {"cuDriverGetVersion", 2020, kCore, Slot(f.driver_get_version)},
      {"cuGetErrorName", 6000, kCore, Slot(f.get_error_name)},
      {"cuGetErrorString", 6000, kCore, Slot(f.get_error_string)},
      {"cuDeviceGetCount", 2000, kCore, Slot(f.device_get_count)},
      {"cuDeviceGet", 2000, kCore, Slot(f.device_get)},
      {"cuDeviceGetName", 2000, kCore, Slot(f.device_get_name)},
      {"cuDeviceGetUuid", 11040, kCore, Slot(f.device_get_uuid)},
      {"cuDeviceGetPCIBusId", 4010, kCore, Slot(f.device_get_pci_bus_id)},
      {"cuDeviceTotalMem", 3020, kCore, Slot(f.device_total_mem)},
      {"cuDeviceGetAttribute", 2000, kCore, Slot(f.device_get_attribute)},
      {"cuDevicePrimaryCtxRetain", 7000, kCore, Slot(f.primary_ctx_retain)},
      {"cuDevicePrimaryCtxRelease", 11000, kCore, Slot(f.primary_ctx_release)},
      {"cuCtxPushCurrent", 4000, kCore, Slot(f.ctx_push_current)},
      {"cuCtxPopCurrent", 4000, kCore, Slot(f.ctx_pop_current)},
      {"cuMemGetInfo", 3020, kCore, Slot(f.mem_get_info)},
      {"cuMemAlloc", 3020, kCore, Slot(f.mem_alloc)},
      {"cuMemFree", 3020, kCore, Slot(f.mem_free)},
      {"cuPointerGetAttributes", 7000, kCore, Slot(f.pointer_get_attributes)},
      {"cuMemGetAddressRange", 3020, kCore, Slot(f.mem_get_address_range)},
      {"cuMemcpyAsync", 4000, kCore, Slot(f.memcpy_async)},
      {"cuMemcpyHtoDAsync", 3020, kCore, Slot(f.memcpy_htod_async)},
      {"cuMemcpyDtoHAsync", 3020, kCore, Slot(f.memcpy_dtoh_async)},
      {"cuThreadExchangeStreamCaptureMode", 10010, kCore,
       Slot(f.thread_exchange_stream_capture_mode)},
      {"cuMemsetD8Async", 3020, kCore, Slot(f.memset_d8_async)},
      {"cuStreamCreate", 2000, kCore, Slot(f.stream_create)},
      {"cuStreamDestroy", 4000, kCore, Slot(f.stream_destroy)},
      {"cuStreamSynchronize", 2000, kCore, Slot(f.stream_synchronize)},
      {"cuEventCreate", 2000, kCore, Slot(f.event_create)},
      {"cuEventDestroy", 4000, kCore, Slot(f.event_destroy)},
      {"cuEventRecord", 2000, kCore, Slot(f.event_record)},
      {"cuEventQuery", 2000, kCore, Slot(f.event_query)},
      {"cuEventSynchronize", 2000, kCore, Slot(f.event_synchronize)},
      {"cuIpcGetMemHandle", 4010, kIpc, Slot(f.ipc_get_mem_handle)},
      {"cuIpcOpenMemHandle", 11000, kIpc, Slot(f.ipc_open_mem_handle)},
      {"cuIpcCloseMemHandle", 4010, kIpc, Slot(f.ipc_close_mem_handle)},
      {"cuMemAddressReserve", 10020, kVirtualMemory, Slot(f.mem_address_reserve)},
      {"cuMemAddressFree", 10020, kVirtualMemory, Slot(f.mem_address_free)},
      {"cuMemCreate", 10020, kVirtualMemory, Slot(f.mem_create)},
      {"cuMemMap", 10020, kVirtualMemory, Slot(f.mem_map)},
      {"cuMemUnmap", 10020, kVirtualMemory, Slot(f.mem_unmap)},
      {"cuMemRelease", 10020, kVirtualMemory, Slot(f.mem_release)},
      {"cuMemSetAccess", 10020, kVirtualMemory, Slot(f.mem_set_access)},
      {"cuMemRetainAllocationHandle", 11000, kVirtualMemory, Slot(f.mem_retain_allocation_handle)},
      {"cuMemExportToShareableHandle", 10020, kVirtualMemory,
       Slot(f.mem_export_to_shareable_handle)},
      {"cuMemImportFromShareableHandle", 10020, kVirtualMemory,
       Slot(f.mem_import_from_shareable_handle)},
      {"cuMemGetHandleForAddressRange", 11070, kDmaBuf, Slot(f.mem_get_handle_for_address_range)},
      {"cuMemcpy2DAsync", 3020, kRowCopy, Slot(f.memcpy_2d_async)},
      {"cuMemHostRegister", 6050, kHostRegister, Slot(f.mem_host_register)},
      {"cuMemHostUnregister", 4000, kHostRegister, Slot(f.mem_host_unregister)},
      {"cuMemHostGetDevicePointer", 3020, kHostRegister, Slot(f.mem_host_get_device_pointer)},
      {"cuDeviceCanAccessPeer", 4000, kPeerAccess, Slot(f.device_can_access_peer)},
      {"cuCtxEnablePeerAccess", 4000, kPeerAccess, Slot(f.ctx_enable_peer_access)},
      {"cuModuleLoadData", 2000, kKernels, Slot(f.module_load_data)},
      {"cuModuleUnload", 2000, kKernels, Slot(f.module_unload)},
      {"cuModuleGetFunction", 2000, kKernels, Slot(f.module_get_function)},
      {"cuLaunchKernel", 4000, kKernels, Slot(f.launch_kernel)},
      {"cuCtxSetLimit", 3010, kContextLimits, Slot(f.ctx_set_limit)},
      // Its first ABI, which a module parameter had to enable, ended with CUDA 11.7.
      {"cuStreamWriteValue64", 11070, kStreamWrites, Slot(f.stream_write_value_64)},
      {"cuStreamIsCapturing", 10000, kStreamWrites, Slot(f.stream_is_capturing)},
      {"cuStreamGetCtx", 9020, kStreamWrites, Slot(f.stream_get_ctx)},
      {"cuStreamGetId", 12000, kStreamWrites, Slot(f.stream_get_id)},
      {"cuCtxGetCurrent", 4000, kStreamWrites, Slot(f.ctx_get_current)},
      {"cuCtxGetDevice", 2000, kStreamWrites, Slot(f.ctx_get_device)},
      {"cuCtxGetId", 12000, kStreamWrites, Slot(f.ctx_get_id)},
  };
}

}  // namespace

gantry::Result<Calls> Calls::Load(const std::string& library) {
  ASSIGN_OR_RETURN(DynamicLibrary opened, DynamicLibrary::Open(library));
  Calls calls(std::move(opened));
  RETURN_IF_ERROR(calls.Bind());
  return calls;
}

Status Calls::Bind() {
  constexpr char kTooOld[] = "update the NVIDIA driver of this node to one of CUDA 12 or later";
  Result (*init)(unsigned flags) = nullptr;
  GetProcAddress get_proc_address = nullptr;
  auto found_both = library_.Bind("cuInit", &init);
  if (found_both) found_both = library_.Bind("cuGetProcAddress_v2", &get_proc_address);
  if (!found_both) {
    return Fail(ErrorCode::kDeviceError, std::move(found_both).error().message, kTooOld);
  }
  const auto look_up = [&](const char* name, int version, void** function) {
    int status = 0;
    if (get_proc_address(name, function, version, 0, &status) != kSuccess || status != 0) {
      *function = nullptr;
    }
    return *function != nullptr;
  };
  for (const Symbol& symbol : SymbolsOf(functions_)) {
    std::string& missing = missing_[static_cast<size_t>(symbol.feature)];
    if (!look_up(symbol.name, symbol.version, symbol.function) && missing.empty()) {
      missing = symbol.name;
    }
  }
  // Its signature changed: each version gets its own.
  const char* const batch = "cuMemcpyBatchAsync";
  int version = 0;
  if (functions_.driver_get_version != nullptr) functions_.driver_get_version(&version);
  const bool found = version >= 13000 ? look_up(batch, 13000, Slot(functions_.memcpy_batch_13000))
                                      : look_up(batch, 12080, Slot(functions_.memcpy_batch_12080));
  if (!found) missing_[static_cast<size_t>(Feature::kBatchCopy)] = batch;
  if (const std::string& lacks = missing_[static_cast<size_t>(Feature::kCore)]; !lacks.empty()) {
    return Fail(ErrorCode::kDeviceError, "the NVIDIA driver has no " + lacks, kTooOld);
  }
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
  return {};
}

Status Calls::Require(Feature feature) const {
  const auto index = static_cast<size_t>(feature);
  if (missing_[index].empty()) return {};
  return Fail(
      ErrorCode::kPathUnavailable,
      "the NVIDIA driver has no " + missing_[index] + ", which " + kFeatureNames[index] + " needs",
      "update the driver of this node");
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
  const char* name = nullptr;
  const char* text = nullptr;
  functions_.get_error_name(result, &name);
  functions_.get_error_string(result, &text);
  return Fail(result == kOutOfMemory ? ErrorCode::kResourceExhausted : ErrorCode::kDeviceError,
              std::string(what) + ": " +
                  (name == nullptr ? "error " + std::to_string(result) : std::string(name)) +
                  (text == nullptr ? "" : " (" + std::string(text) + ")"));
}

}  // namespace gantry::gpu::cuda
