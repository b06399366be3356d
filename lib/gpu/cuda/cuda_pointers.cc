#include "lib/gpu/cuda/cuda_pointers.h"

#include <array>
#include <cstring>
#include <utility>

#include "lib/gpu/cuda/mig_slice.h"

namespace gantry::gpu {
namespace {

constexpr int kUuidBytes = 16;

}  // namespace

namespace cuda {

std::string TextOf(const Uuid& uuid) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text = "GPU-";
  for (int i = 0; i < kUuidBytes; ++i) {
    const auto byte = static_cast<unsigned char>(uuid.bytes[i]);
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

gantry::Result<PointerAttributes> AttributesOf(const Calls& calls, uint64_t address) {
  PointerAttributes read;
  std::array<std::pair<int, uint64_t*>, 11> wanted = {{
      {kPointerContext, &read.context},
      {kPointerMemoryType, &read.memory_type},
      {kPointerBufferId, &read.buffer_id},
      {kPointerIsManaged, &read.is_managed},
      {kPointerDeviceOrdinal, &read.device},
      {kPointerIsLegacyIpcCapable, &read.has_ipc},
      {kPointerRangeStart, &read.range_start},
      {kPointerRangeSize, &read.range_size},
      {kPointerMempool, &read.pool},
      {kPointerMappingSize, &read.mapping_size},
      {kPointerMappingBase, &read.mapping_base},
  }};
  std::array<int, wanted.size()> attributes;
  std::array<void*, wanted.size()> values;
  for (size_t i = 0; i < wanted.size(); ++i) {
    attributes[i] = wanted[i].first;
    values[i] = wanted[i].second;
  }
  RETURN_IF_ERROR(calls.Check(
      calls->pointer_get_attributes(attributes.size(), attributes.data(), values.data(), address),
      "cuPointerGetAttributes of " + TextOf(DeviceAddress{address})));
  return read;
}

}  // namespace cuda

bool CudaPointers::IsInUse(const DynamicLibrary& library) {
  cuda::Result (*current)(cuda::Context * context) = nullptr;
  if (!library.Bind("cuCtxGetCurrent", &current)) return false;
  cuda::Context context = nullptr;
  return current(&context) != cuda::kNotInitialized;
}

Status CudaPointers::ReadDevices() {
  const cuda::Calls& calls = *calls_;
  int count = 0;
  RETURN_IF_ERROR(calls.Check(calls->device_get_count(&count), "cuDeviceGetCount"));
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    ASSIGN_OR_RETURN(DeviceInfo device, ReadDevice(ordinal));
    devices_.push_back(std::move(device));
  }
  return {};
}

Result<DeviceInfo> CudaPointers::ReadDevice(int ordinal) const {
  const cuda::Calls& calls = *calls_;
  const std::string what = "reading GPU " + std::to_string(ordinal);
  cuda::Device device = 0;
  RETURN_IF_ERROR(calls.Check(calls->device_get(&device, ordinal), what));
  DeviceInfo info;
  info.ordinal = ordinal;
  char text[256] = {};
  RETURN_IF_ERROR(calls.Check(calls->device_get_name(text, sizeof(text) - 1, device), what));
  info.name = text;
  RETURN_IF_ERROR(calls.Check(calls->device_get_pci_bus_id(text, sizeof(text) - 1, device), what));
  info.pci_address = text;
  // As the kernel writes it.
  for (char& digit : info.pci_address)
    digit = digit >= 'A' && digit <= 'F' ? static_cast<char>(digit - 'A' + 'a') : digit;
  cuda::Uuid uuid = {};
  RETURN_IF_ERROR(calls.Check(calls->device_get_uuid(&uuid, device), what));
  info.uuid = cuda::TextOf(uuid);
  if (IsMigSlice(info.name)) {  // the driver answers the slice's, and not the GPU's
    info.uuid.replace(0, kMigPrefix.size(), kMigPrefix);
  }
  size_t bytes = 0;
  RETURN_IF_ERROR(calls.Check(calls->device_total_mem(&bytes, device), what));
  info.memory_bytes = bytes;
  int exports_fds = 0;
  int exports_dma_buf = 0;
  int writes_ordering = 0;
  for (const auto& [attribute, value] :
       {std::pair{cuda::kMultiprocessorCount, &info.multiprocessors},
        std::pair{cuda::kComputeMajor, &info.compute_major},
        std::pair{cuda::kComputeMinor, &info.compute_minor},
        std::pair{cuda::kPosixFdSupported, &exports_fds},
        std::pair{cuda::kDmaBufSupported, &exports_dma_buf},
        std::pair{cuda::kRdmaWritesOrdering, &writes_ordering}}) {
    RETURN_IF_ERROR(calls.Check(calls->device_get_attribute(value, attribute, device), what));
  }
  info.exports_fds = exports_fds != 0;
  info.exports_dma_buf = exports_dma_buf != 0;
  info.orders_rdma_writes = writes_ordering >= cuda::kRdmaWritesOrderedForOwner;
  return info;
}

Result<std::optional<cuda::MemHandle>> CudaPointers::RetainPiece(DeviceAddress address) const {
  const cuda::Calls& calls = *calls_;
  RETURN_IF_ERROR(calls.Require(cuda::Feature::kVirtualMemory));
  cuda::MemHandle handle = 0;
  // The driver takes an address of the device as a pointer here.
  const cuda::Result result =
      calls->mem_retain_allocation_handle(&handle, reinterpret_cast<void*>(NumberOf(address)));
  if (result == cuda::kInvalidValue) return std::nullopt;
  RETURN_IF_ERROR(calls.Check(result, "cuMemRetainAllocationHandle of " + TextOf(address)));
  return handle;
}

Result<PointerInfo> CudaPointers::Resolve(uint64_t address) const {
  ASSIGN_OR_RETURN(const cuda::PointerAttributes read, cuda::AttributesOf(*calls_, address));
  PointerInfo info;
  if (read.memory_type == 0) return info;
  info.buffer_id = read.buffer_id;
  info.device = static_cast<int>(read.device);
  info.allocation = {DeviceAddress{read.range_start}, read.range_size};
  info.has_ipc_handle = read.has_ipc != 0;
  if (read.is_managed != 0) {
    info.origin = MemoryOrigin::kManaged;
  } else if (read.memory_type == cuda::kMemoryTypeHost) {
    info.origin = MemoryOrigin::kPinned;
  } else if (read.pool != 0) {
    info.origin = MemoryOrigin::kPool;
  } else {
    ASSIGN_OR_RETURN(const auto piece, RetainPiece(DeviceAddress{address}));
    info.origin = piece ? MemoryOrigin::kVirtual : MemoryOrigin::kDevice;
    if (piece) {
      (*calls_)->mem_release(*piece);
      info.allocation = {DeviceAddress{read.mapping_base}, read.mapping_size};
    }
  }
  return info;
}

Result<uint64_t> CudaPointers::BufferIdOf(DeviceAddress address) const {
  uint64_t buffer_id = 0;
  int attribute = cuda::kPointerBufferId;
  void* value = &buffer_id;
  const cuda::Calls& calls = *calls_;
  // In the plural, because only that answers 0 for an address that the driver does not know.
  const cuda::Result result =
      calls->pointer_get_attributes(1, &attribute, &value, NumberOf(address));
  if (result == cuda::kSuccess) return buffer_id;
  return Fail(calls.Check(result, "cuPointerGetAttributes of " + TextOf(address)).error());
}

Result<IpcHandle> CudaPointers::ExportIpc(DeviceAddress address) const {
  const cuda::Calls& calls = *calls_;
  RETURN_IF_ERROR(calls.Require(cuda::Feature::kIpc));
  ASSIGN_OR_RETURN(const cuda::PointerAttributes read,
                   cuda::AttributesOf(calls, NumberOf(address)));
  if (read.has_ipc == 0) {
    return Fail(NotExportable(
        address,
        "has no handle for other processes: it is not memory of cudaMalloc in this process",
        "virtual memory (expandable segments) is shared by its pieces; memory of "
        "cudaMallocAsync, managed memory and memory that came from another process cannot be "
        "shared: use cudaMalloc"));
  }
  const CudaCurrent current(calls, reinterpret_cast<cuda::Context>(read.context));
  RETURN_IF_ERROR(current.status());
  cuda::IpcMemHandle handle = {};
  RETURN_IF_ERROR(calls.Check(calls->ipc_get_mem_handle(&handle, NumberOf(address)),
                              "cuIpcGetMemHandle of " + TextOf(address)));
  IpcHandle exported;
  static_assert(sizeof(handle) == sizeof(exported.bytes));
  std::memcpy(exported.bytes.data(), &handle, sizeof(handle));
  return exported;
}

Result<UniqueFd> CudaPointers::ExportPiece(DeviceAddress address) const {
  ASSIGN_OR_RETURN(const auto piece, RetainPiece(address));
  if (!piece) {
    return Fail(NotExportable(address, "is no virtual memory",
                              "memory of cudaMalloc is shared by its handle"));
  }
  return ExportRetained(address, *piece);
}

Result<DmaBufExport> CudaPointers::ExportDmaBuf(const AddressRange& range) const {
  const cuda::Calls& calls = *calls_;
  RETURN_IF_ERROR(calls.Require(cuda::Feature::kDmaBuf));
  ASSIGN_OR_RETURN(const cuda::PointerAttributes read,
                   cuda::AttributesOf(calls, NumberOf(range.base)));
  const auto device = static_cast<int>(read.device);
  if (read.memory_type != cuda::kMemoryTypeDevice || device < 0 ||
      device >= static_cast<int>(devices().size())) {
    return Fail(NotExportable(range.base, "is no memory of a GPU that this process sees",
                              "register memory of the GPU"));
  }
  if (const DeviceInfo& info = devices()[static_cast<size_t>(device)]; !info.exports_dma_buf) {
    return Fail(ErrorCode::kPathUnavailable, "GPU " + info.uuid + " exports no dma-buf",
                "with NVIDIA's open kernel modules it does");
  }
  auto context = reinterpret_cast<cuda::Context>(read.context);
  std::shared_ptr<const CudaPrimary> primary;
  if (context == nullptr) {  // virtual and pool memory belong to none, and the call wants one
    ASSIGN_OR_RETURN(primary, CudaPrimary::Open(calls_, devices()[static_cast<size_t>(device)]));
    context = primary->context();
  }
  const CudaCurrent current(calls, context);
  RETURN_IF_ERROR(current.status());
  int fd = -1;
  const cuda::Result result = calls->mem_get_handle_for_address_range(
      &fd, NumberOf(range.base), range.size, cuda::kRangeHandleTypeDmaBuf, 0);
  if (result == cuda::kInvalidValue || result == cuda::kNotSupported) {
    return Fail(NotExportable(range.base,
                              "cannot be a dma-buf over " + std::to_string(range.size) + " bytes",
                              "whole pages within one allocation of this process can be, where the "
                              "GPU supports it"));
  }
  RETURN_IF_ERROR(calls.Check(result, "cuMemGetHandleForAddressRange of " + TextOf(range.base)));
  return DmaBufExport{UniqueFd(fd), 0, range.size};
}

}  // namespace gantry::gpu
