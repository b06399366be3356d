// The values that every vendor's driver speaks of. Plain values.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>

namespace gantry::gpu {

// Where a GPU finds a byte, in the process that asks. It is no pointer: the host cannot follow it,
// and the address that another process has for the same byte is another one.
enum class DeviceAddress : uint64_t {};

constexpr uint64_t NumberOf(DeviceAddress address) { return static_cast<uint64_t>(address); }
// REQUIRES that the sum lies within the same allocation.
constexpr DeviceAddress operator+(DeviceAddress address, uint64_t bytes) {
  return static_cast<DeviceAddress>(NumberOf(address) + bytes);
}

struct AddressRange {
  DeviceAddress base{};
  uint64_t size = 0;  // bytes

  bool operator==(const AddressRange&) const = default;
};

struct DeviceInfo {
  int ordinal = 0;          // means something in this process only; others are told the UUID
  std::string uuid;         // as the vendor's tools print it: "GPU-4f1c..."
  std::string name;         // of the product
  std::string pci_address;  // "0000:1b:00.0"
  uint64_t memory_bytes = 0;
  int compute_major = 0;  // of the instruction set
  int compute_minor = 0;
  int multiprocessors = 0;
  bool exports_dma_buf = false;
  // What other devices wrote to its memory is there for its own work when they say so, without a
  // flush.
  bool orders_rdma_writes = false;
  bool exports_fds = false;  // of virtual memory, as POSIX descriptors
};

// How memory came to be, which decides how it can be shared.
enum class MemoryOrigin {
  kUnknown,  // not the driver's: malloc, mmap
  kDevice,   // cudaMalloc, hipMalloc: one handle for the whole allocation
  kVirtual,  // pieces mapped side by side: a descriptor for each
  kPool,     // stream-ordered: no handle
  kManaged,  // migrates: no handle
  kPinned,   // host memory that the GPU can reach
};

// What the driver knows of an address.
struct PointerInfo {
  MemoryOrigin origin = MemoryOrigin::kUnknown;
  int device = -1;  // ordinal
  // The allocation around it; of virtual memory the one piece around it.
  AddressRange allocation;
  // Never given to another allocation of this process: tells memory that was freed and allocated
  // again from what it was. 0 when the origin is unknown.
  uint64_t buffer_id = 0;
  bool has_ipc_handle = false;  // ExportIpc will work
  // Other processes may map it by ExportDmaBuf, wherever they run: better than by a handle.
  bool is_shared_by_dma_buf = false;
};

// Names a whole allocation to other processes of the node. An address inside of it has the same
// handle, so that an offset always travels beside it.
struct IpcHandle {
  std::array<std::byte, 64> bytes{};
  auto operator<=>(const IpcHandle&) const = default;
};

// Kernels read it as it is here.
struct CopyItem {
  DeviceAddress to{};
  DeviceAddress from{};
  uint64_t bytes = 0;
};
static_assert(offsetof(CopyItem, to) == 0 && offsetof(CopyItem, from) == 8 &&
              offsetof(CopyItem, bytes) == 16 && sizeof(CopyItem) == 24);

// What a driver wants of those who share memory between processes.
struct SharingRules {
  // Attaches beside each other may map wrong memory: one process of a pool's after another.
  bool one_attach_at_a_time = false;
  // A handle is opened within the pod of the process that made it, and must be tried nowhere else.
  bool handles_stay_in_pod = false;
};

struct MemoryAmount {
  uint64_t free = 0;
  uint64_t total = 0;
};

}  // namespace gantry::gpu
