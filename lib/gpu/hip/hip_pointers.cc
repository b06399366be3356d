#include "lib/gpu/hip/hip_pointers.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <type_traits>

#include "lib/base/byte_range.h"

namespace gantry::gpu {
namespace {

constexpr char kWholePages[] = "whole pages within one allocation of this process can be";

// Memory of another process, which cannot be handed on.
bool CameFromElsewhere(const hip::Calls& calls, uint64_t address) {
  hsa::PointerInfo info = {};
  info.size = sizeof(info);
  return calls.hsa().amd_pointer_info != nullptr &&
         calls.hsa().amd_pointer_info(reinterpret_cast<const void*>(address), &info, nullptr,
                                      nullptr, nullptr) == hsa::kSuccess &&
         (info.type == hsa::kPointerOfGraphics || info.type == hsa::kPointerOfIpc);
}

}  // namespace

namespace hip {

std::string IdentityOf(const Uuid& uuid, const std::string& pci_address) {
  const auto bytes = reinterpret_cast<const unsigned char*>(uuid.bytes);
  const auto is_zero = [](unsigned char byte) { return byte == 0 || byte == '0'; };
  if (std::all_of(bytes, bytes + sizeof(uuid.bytes), is_zero) || uuid.bytes[0] == 'X') {
    return "GPU-" + pci_address;
  }
  std::string text = "GPU-";
  const bool is_text = std::all_of(bytes, bytes + sizeof(uuid.bytes),
                                   [](unsigned char byte) { return std::isxdigit(byte) != 0; });
  for (const unsigned char* byte = bytes; byte != bytes + sizeof(uuid.bytes); ++byte) {
    if (is_text) {
      text += static_cast<char>(std::tolower(*byte));
    } else {
      text += (*byte < 16 ? "0" : "") + HexOf(*byte);
    }
  }
  const size_t dot = pci_address.rfind('.');
  if (dot == pci_address.npos || pci_address.substr(dot) == ".0") return text;
  return text + pci_address.substr(dot);
}

}  // namespace hip

Status HipPointers::ReadDevices() {
  const hip::Calls& calls = *calls_;
  const hip::LastErrorKept kept(calls);
  int count = 0;
  const hip::Result counted = calls->device_get_count(&count);
  if (counted == hip::kNoDevice) return {};
  RETURN_IF_ERROR(calls.Check(counted, "hipGetDeviceCount"));
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    ASSIGN_OR_RETURN(DeviceInfo device, ReadDevice(ordinal));
    devices_.push_back(std::move(device));
  }
  return {};
}

Result<DeviceInfo> HipPointers::ReadDevice(int ordinal) const {
  const hip::Calls& calls = *calls_;
  const std::string what = "reading GPU " + std::to_string(ordinal);
  DeviceInfo info;
  info.ordinal = ordinal;
  char text[256] = {};
  RETURN_IF_ERROR(calls.Check(calls->device_get_name(text, sizeof(text) - 1, ordinal), what));
  info.name = text;
  RETURN_IF_ERROR(calls.Check(calls->device_get_pci_bus_id(text, sizeof(text) - 1, ordinal), what));
  info.pci_address = text;
  for (char& digit : info.pci_address)  // as the kernel writes it
    digit = static_cast<char>(std::tolower(static_cast<unsigned char>(digit)));
  hip::Uuid uuid = {};
  if (calls.Require(hip::Feature::kUuid)) {
    RETURN_IF_ERROR(calls.Check(calls->device_get_uuid(&uuid, ordinal), what));
  }
  info.uuid = hip::IdentityOf(uuid, info.pci_address);
  size_t bytes = 0;
  RETURN_IF_ERROR(calls.Check(calls->device_total_mem(&bytes, ordinal), what));
  info.memory_bytes = bytes;
  for (const auto& [attribute, value] :
       {std::pair{hip::kMultiprocessorCount, &info.multiprocessors},
        std::pair{hip::kComputeMajor, &info.compute_major},
        std::pair{hip::kComputeMinor, &info.compute_minor}}) {
    RETURN_IF_ERROR(calls.Check(calls->device_get_attribute(value, attribute, ordinal), what));
  }
  int has_virtual_memory = 0;
  // Versions before the attribute refuse it: there virtual memory is found out by trying.
  const hip::Result asked =
      calls->device_get_attribute(&has_virtual_memory, hip::kVirtualMemorySupported, ordinal);
  info.exports_fds = calls.Require(hip::Feature::kVirtualMemory) &&
                     (asked == hip::kInvalidValue || has_virtual_memory != 0);
  info.exports_dma_buf = calls.Require(hip::Feature::kDmaBuf).has_value();
  // A write over PCIe may wait in the GPU's host data path until that is flushed.
  info.orders_rdma_writes = false;
  return info;
}

template <typename Value>
Result<std::optional<Value>> HipPointers::Attribute(int attribute, uint64_t address) const {
  const hip::Calls& calls = *calls_;
  const hip::LastErrorKept kept(calls);
  if (address == 0) return std::nullopt;
  uint64_t room = 0;  // for the widest type
  const hip::Result result =
      calls->pointer_get_attribute(&room, attribute, reinterpret_cast<void*>(address));
  if (result == hip::kInvalidValue || result == hip::kInvalidDevicePointer ||
      result == hip::kNotSupported) {
    return std::nullopt;
  }
  RETURN_IF_ERROR(
      calls.Check(result, "hipPointerGetAttribute of " + TextOf(DeviceAddress{address})));
  Value value = {};
  std::memcpy(&value, &room, sizeof(value));
  return value;
}

// The pointer attribute for it has 32 bits for the size.
Result<AddressRange> HipPointers::RangeAround(DeviceAddress address) const {
  const hip::Calls& calls = *calls_;
  const hip::LastErrorKept kept(calls);
  void* base = nullptr;
  size_t size = 0;
  RETURN_IF_ERROR(calls.Check(calls->mem_get_address_range(&base, &size, PointerOf(address)),
                              "hipMemGetAddressRange of " + TextOf(address)));
  return AddressRange{AddressOf(base), size};
}

Result<std::optional<hip::MemHandle>> HipPointers::RetainPiece(DeviceAddress address) const {
  const hip::Calls& calls = *calls_;
  const hip::LastErrorKept kept(calls);
  if (!calls.Require(hip::Feature::kVirtualMemory)) return std::nullopt;
  hip::MemHandle handle = nullptr;
  const hip::Result result = calls->mem_retain_allocation_handle(&handle, PointerOf(address));
  if (result == hip::kInvalidValue || result == hip::kNotSupported) return std::nullopt;
  RETURN_IF_ERROR(calls.Check(result, "hipMemRetainAllocationHandle of " + TextOf(address)));
  if (handle == nullptr) return std::nullopt;
  return handle;
}

Result<PointerInfo> HipPointers::Resolve(uint64_t address) const {
  const hip::Calls& calls = *calls_;
  PointerInfo info;
  ASSIGN_OR_RETURN(info.buffer_id, BufferIdOf(DeviceAddress{address}));
  if (info.buffer_id == 0) return info;
  ASSIGN_OR_RETURN(const auto type, Attribute<int32_t>(hip::kPointerMemoryType, address));
  ASSIGN_OR_RETURN(const auto managed, Attribute<uint8_t>(hip::kPointerIsManaged, address));
  ASSIGN_OR_RETURN(const auto device, Attribute<int32_t>(hip::kPointerDeviceOrdinal, address));
  const auto around = RangeAround(DeviceAddress{address});
  if (around) info.allocation = *around;
  info.device = device.value_or(-1);
  const hip::MemoryTypes types = hip::MemoryTypesOf(calls.version());
  if (managed.value_or(0) != 0 || (type && *type == types.managed)) {
    info.origin = MemoryOrigin::kManaged;
    return info;
  }
  if (!type || *type == types.host) {
    info.origin = MemoryOrigin::kPinned;
    return info;
  }
  RETURN_IF_ERROR(around);  // of the host's memory nobody needs it
  ASSIGN_OR_RETURN(const auto pool, Attribute<uint64_t>(hip::kPointerMempool, address));
  if (pool.value_or(0) != 0) {
    info.origin = MemoryOrigin::kPool;
    return info;
  }
  ASSIGN_OR_RETURN(const auto piece, RetainPiece(DeviceAddress{address}));
  info.origin = piece ? MemoryOrigin::kVirtual : MemoryOrigin::kDevice;
  if (piece) {
    calls->mem_release(*piece);
    return info;
  }
  if (CameFromElsewhere(calls, address)) return info;
  info.has_ipc_handle = calls.Require(hip::Feature::kIpc).has_value();
  info.is_shared_by_dma_buf = calls.Require(hip::Feature::kDmaBuf).has_value();
  return info;
}

Result<uint64_t> HipPointers::BufferIdOf(DeviceAddress address) const {
  ASSIGN_OR_RETURN(const auto id, Attribute<uint32_t>(hip::kPointerBufferId, NumberOf(address)));
  // They count from 0, which stands for memory that nobody knows here.
  return id ? uint64_t{*id} + 1 : 0;
}

Result<IpcHandle> HipPointers::ExportIpc(DeviceAddress address) const {
  const hip::Calls& calls = *calls_;
  RETURN_IF_ERROR(calls.Require(hip::Feature::kIpc));
  ASSIGN_OR_RETURN(const PointerInfo info, Resolve(NumberOf(address)));
  if (!info.has_ipc_handle) {
    return Fail(NotExportable(
        address, "has no handle for other processes: it is not memory of hipMalloc in this process",
        "virtual memory (expandable segments) is shared by its pieces; memory of hipMallocAsync, "
        "managed memory and memory that came from another process cannot be shared: use "
        "hipMalloc"));
  }
  const MutexLock lock(export_mutex_);
  const HipCurrent current(calls, info.device);
  RETURN_IF_ERROR(current.status());
  hip::IpcMemHandle handle = {};
  // Of the base: handles of two addresses of one allocation differ.
  const hip::Result result = calls->ipc_get_mem_handle(&handle, PointerOf(info.allocation.base));
  if (result == hip::kInvalidValue || result == hip::kInvalidDevicePointer) {
    return Fail(NotExportable(address, "has no handle: the HIP runtime refuses one",
                              "memory that came from another process cannot be shared again"));
  }
  RETURN_IF_ERROR(calls.Check(result, "hipIpcGetMemHandle of " + TextOf(address)));
  IpcHandle exported;
  static_assert(sizeof(handle) == sizeof(exported.bytes));
  std::memcpy(exported.bytes.data(), &handle, sizeof(handle));
  return exported;
}

Result<UniqueFd> HipPointers::ExportPiece(DeviceAddress address) const {
  const hip::Calls& calls = *calls_;
  const hip::LastErrorKept kept(calls);
  RETURN_IF_ERROR(calls.Require(hip::Feature::kVirtualMemory));
  ASSIGN_OR_RETURN(const auto piece, RetainPiece(address));
  if (!piece) {
    return Fail(NotExportable(address, "is no virtual memory",
                              "memory of hipMalloc is shared as a dma-buf, or by its handle"));
  }
  const MutexLock lock(export_mutex_);
  return ExportRetained(address, *piece);
}

Result<DmaBufExport> HipPointers::ExportDmaBuf(const AddressRange& range) const {
  const hip::Calls& calls = *calls_;
  RETURN_IF_ERROR(calls.Require(hip::Feature::kDmaBuf));
  ASSIGN_OR_RETURN(const PointerInfo info, Resolve(NumberOf(range.base)));
  if (!info.is_shared_by_dma_buf && info.origin != MemoryOrigin::kVirtual) {
    return Fail(NotExportable(range.base, "is no memory of a GPU that this process sees",
                              "register memory of the GPU"));
  }
  // HSA takes what lies within the allocation: its last page may end behind that.
  uint64_t end = 0;
  uint64_t allocated_end = 0;
  if (!EndOf(NumberOf(range.base), range.size, &end) ||
      !EndOf(NumberOf(info.allocation.base), info.allocation.size, &allocated_end)) {
    return Fail(ErrorCode::kInvalidArgument, "a range that wraps around");
  }
  const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  if (NumberOf(range.base) % page != 0 || end > (allocated_end + page - 1) / page * page) {
    return Fail(NotExportable(range.base,
                              "cannot be a dma-buf over " + std::to_string(range.size) + " bytes",
                              kWholePages));
  }
  const uint64_t bytes = std::min(end, allocated_end) - NumberOf(range.base);
  const MutexLock lock(export_mutex_);
  int fd = -1;
  DmaBufExport exported;
  const hsa::Status status =
      calls.hsa().amd_portable_export_dmabuf(PointerOf(range.base), bytes, &fd, &exported.offset);
  if (status == hsa::kErrorInvalidAllocation || status == hsa::kErrorInvalidAgent ||
      status == hsa::kErrorInvalidArgument) {
    return Fail(NotExportable(range.base,
                              "cannot be a dma-buf over " + std::to_string(range.size) + " bytes",
                              kWholePages));
  }
  if (status != hsa::kSuccess) {
    const char* text = nullptr;
    calls.hsa().status_string(status, &text);
    return Fail(ErrorCode::kDeviceError,
                "hsa_amd_portable_export_dmabuf of " + TextOf(range.base) + ": " +
                    (text == nullptr ? "status " + std::to_string(status) : std::string(text)));
  }
  exported.fd = UniqueFd(fd);
  const off_t size = ::lseek(fd, 0, SEEK_END);
  if (size < 0 || !Fits(exported.offset, bytes, static_cast<uint64_t>(size))) {
    return Fail(ErrorCode::kDeviceError,
                "the dma-buf of " + TextOf(range.base) + " has " + std::to_string(size) +
                    " bytes, and the memory is said to lie at " + std::to_string(exported.offset));
  }
  exported.size = static_cast<uint64_t>(size);
  return exported;
}

}  // namespace gantry::gpu
