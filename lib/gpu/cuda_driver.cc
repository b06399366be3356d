#include "lib/gpu/cuda_driver.h"

#include <cstring>
#include <utility>

#include "lib/gpu/cuda_context.h"

namespace gantry::gpu {
namespace {

constexpr int kUuidBytes = 16;

std::string HexOf(uint64_t number) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  do {
    text.insert(text.begin(), kDigits[number & 15]);
    number >>= 4;
  } while (number != 0);
  return "0x" + text;
}

// As nvidia-smi prints it.
std::string TextOf(const cuda::Uuid& uuid) {
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

// What the driver says about an address; zeros about one that it does not know. Every value has
// room for the widest type.
struct PointerAttributes {
  uint64_t context = 0, memory_type = 0, buffer_id = 0, is_managed = 0, device = 0, has_ipc = 0,
           range_start = 0, range_size = 0, pool = 0, mapping_size = 0, mapping_base = 0;
};

Result<PointerAttributes> AttributesOf(const cuda::Calls& calls, uint64_t address) {
  PointerAttributes read;
  std::array<std::pair<int, uint64_t*>, 11> wanted = {{
      {cuda::kPointerContext, &read.context},
      {cuda::kPointerMemoryType, &read.memory_type},
      {cuda::kPointerBufferId, &read.buffer_id},
      {cuda::kPointerIsManaged, &read.is_managed},
      {cuda::kPointerDeviceOrdinal, &read.device},
      {cuda::kPointerIsLegacyIpcCapable, &read.has_ipc},
      {cuda::kPointerRangeStart, &read.range_start},
      {cuda::kPointerRangeSize, &read.range_size},
      {cuda::kPointerMempool, &read.pool},
      {cuda::kPointerMappingSize, &read.mapping_size},
      {cuda::kPointerMappingBase, &read.mapping_base},
  }};
  std::array<int, wanted.size()> attributes;
  std::array<void*, wanted.size()> values;
  for (size_t i = 0; i < wanted.size(); ++i) {
    attributes[i] = wanted[i].first;
    values[i] = wanted[i].second;
  }
  RETURN_IF_ERROR(calls.Check(
      calls->pointer_get_attributes(attributes.size(), attributes.data(), values.data(), address),
      "cuPointerGetAttributes of " + HexOf(address)));
  return read;
}

Error NotExportable(DeviceAddress address, const std::string& why, const std::string& hint) {
  return Error(ErrorCode::kNotExportable, HexOf(NumberOf(address)) + " " + why, hint);
}

}  // namespace

Result<std::unique_ptr<GpuDriver>> CudaDriver::Load(const std::string& library) {
  ASSIGN_OR_RETURN(cuda::Calls calls, cuda::Calls::Load(library));
  std::unique_ptr<CudaDriver> driver(new CudaDriver(std::move(calls)));
  RETURN_IF_ERROR(driver->ReadDevices());
  return driver;
}

CudaDriver::CudaDriver(cuda::Calls calls)
    : calls_(std::make_shared<const cuda::Calls>(std::move(calls))) {}

Status CudaDriver::ReadDevices() {
  const cuda::Calls& calls = *calls_;
  RETURN_IF_ERROR(calls.Check(calls->driver_get_version(&version_), "cuDriverGetVersion"));
  int count = 0;
  RETURN_IF_ERROR(calls.Check(calls->device_get_count(&count), "cuDeviceGetCount"));
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    ASSIGN_OR_RETURN(DeviceInfo device, ReadDevice(ordinal));
    devices_.push_back(std::move(device));
  }
  return {};
}

Result<DeviceInfo> CudaDriver::ReadDevice(int ordinal) const {
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
  info.uuid = TextOf(uuid);
  size_t bytes = 0;
  RETURN_IF_ERROR(calls.Check(calls->device_total_mem(&bytes, device), what));
  info.memory_bytes = bytes;
  int exports_fds = 0;
  int exports_dma_buf = 0;
  for (const auto& [attribute, value] :
       {std::pair{cuda::kMultiprocessorCount, &info.multiprocessors},
        std::pair{cuda::kComputeMajor, &info.compute_major},
        std::pair{cuda::kComputeMinor, &info.compute_minor},
        std::pair{cuda::kPosixFdSupported, &exports_fds},
        std::pair{cuda::kDmaBufSupported, &exports_dma_buf}}) {
    RETURN_IF_ERROR(calls.Check(calls->device_get_attribute(value, attribute, device), what));
  }
  info.exports_fds = exports_fds != 0;
  info.exports_dma_buf = exports_dma_buf != 0;
  return info;
}

Result<std::optional<cuda::MemHandle>> CudaDriver::RetainPiece(DeviceAddress address) const {
  const cuda::Calls& calls = *calls_;
  RETURN_IF_ERROR(calls.Require(cuda::Feature::kVirtualMemory));
  cuda::MemHandle handle = 0;
  // The driver takes an address of the device as a pointer here.
  const cuda::Result result =
      calls->mem_retain_allocation_handle(&handle, reinterpret_cast<void*>(NumberOf(address)));
  if (result == cuda::kInvalidValue) return std::nullopt;
  RETURN_IF_ERROR(
      calls.Check(result, "cuMemRetainAllocationHandle of " + HexOf(NumberOf(address))));
  return handle;
}

Result<PointerInfo> CudaDriver::Resolve(uint64_t address) const {
  ASSIGN_OR_RETURN(const PointerAttributes read, AttributesOf(*calls_, address));
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

Result<IpcHandle> CudaDriver::ExportIpc(DeviceAddress address) const {
  const cuda::Calls& calls = *calls_;
  RETURN_IF_ERROR(calls.Require(cuda::Feature::kIpc));
  ASSIGN_OR_RETURN(const PointerAttributes read, AttributesOf(calls, NumberOf(address)));
  if (read.has_ipc == 0) {
    return Fail(NotExportable(
        address,
        "has no handle for other processes: it is not memory of cudaMalloc in this process",
        "virtual memory (expandable segments) is shared by its pieces; memory of "
        "cudaMallocAsync, "
        "managed "
        "memory and memory that came from another process cannot be shared: use cudaMalloc"));
  }
  const CudaCurrent current(calls, reinterpret_cast<cuda::Context>(read.context));
  RETURN_IF_ERROR(current.status());
  cuda::IpcMemHandle handle = {};
  RETURN_IF_ERROR(calls.Check(calls->ipc_get_mem_handle(&handle, NumberOf(address)),
                              "cuIpcGetMemHandle of " + HexOf(NumberOf(address))));
  IpcHandle exported;
  static_assert(sizeof(handle) == sizeof(exported.bytes));
  std::memcpy(exported.bytes.data(), &handle, sizeof(handle));
  return exported;
}

Result<UniqueFd> CudaDriver::ExportPiece(DeviceAddress address) const {
  const cuda::Calls& calls = *calls_;
  ASSIGN_OR_RETURN(const auto piece, RetainPiece(address));
  if (!piece) {
    return Fail(NotExportable(address, "is no virtual memory",
                              "memory of cudaMalloc is shared by its handle"));
  }
  int fd = -1;
  const cuda::Result result =
      calls->mem_export_to_shareable_handle(&fd, *piece, cuda::kHandleTypePosixFd, 0);
  calls->mem_release(*piece);
  if (result == cuda::kInvalidValue || result == cuda::kNotSupported) {
    return Fail(NotExportable(
        address, "is virtual memory that was made without descriptors for other processes",
        "its maker must ask for handles of the type POSIX file descriptor"));
  }
  RETURN_IF_ERROR(
      calls.Check(result, "cuMemExportToShareableHandle of " + HexOf(NumberOf(address))));
  return UniqueFd(fd);
}

Result<UniqueFd> CudaDriver::ExportDmaBuf(const AddressRange& range) const {
  const cuda::Calls& calls = *calls_;
  RETURN_IF_ERROR(calls.Require(cuda::Feature::kDmaBuf));
  ASSIGN_OR_RETURN(const PointerAttributes read, AttributesOf(calls, NumberOf(range.base)));
  const auto device = static_cast<int>(read.device);
  if (read.memory_type != cuda::kMemoryTypeDevice || device < 0 ||
      device >= static_cast<int>(devices_.size())) {
    return Fail(NotExportable(range.base, "is no memory of a GPU that this process sees",
                              "register memory of the GPU"));
  }
  auto context = reinterpret_cast<cuda::Context>(read.context);
  std::shared_ptr<const CudaPrimary> primary;
  if (context == nullptr) {  // virtual and pool memory belong to none, and the call wants one
    ASSIGN_OR_RETURN(primary, CudaPrimary::Retain(calls_, devices_[static_cast<size_t>(device)]));
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
  RETURN_IF_ERROR(
      calls.Check(result, "cuMemGetHandleForAddressRange of " + HexOf(NumberOf(range.base))));
  return UniqueFd(fd);
}

Result<std::unique_ptr<GpuContext>> CudaDriver::OpenContext(int ordinal) {
  if (ordinal < 0 || ordinal >= static_cast<int>(devices_.size())) {
    return Fail(ErrorCode::kInvalidArgument, "there is no GPU " + std::to_string(ordinal) +
                                                 " in this process, which sees " +
                                                 std::to_string(devices_.size()));
  }
  return CudaContext::Open(calls_, devices_[static_cast<size_t>(ordinal)]);
}

}  // namespace gantry::gpu
