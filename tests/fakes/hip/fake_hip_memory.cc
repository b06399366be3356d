// libamdhip64 of machines without a GPU: memory, virtual memory, and the host's.
#include <sys/stat.h>

#include <mutex>
#include <set>

#include "tests/fakes/hip/fake_hip.h"
#include "tests/fakes/hip/fake_hip_attach.h"

namespace gantry::fake_hip {
namespace {

// Small allocations lie side by side in a larger one of the kernel's: the dma-buf of one begins
// before it.
constexpr uint64_t kSmall = 2 << 20;
constexpr uint64_t kLead = 3 * 4096;

fake_gpu::PieceId IdOf(hip::MemHandle piece) { return reinterpret_cast<fake_gpu::PieceId>(piece); }
hip::MemHandle HandleOf(fake_gpu::PieceId piece) { return reinterpret_cast<hip::MemHandle>(piece); }

hip::Result Make(BlockKind kind, int gpu, size_t bytes, void** answer) {
  Address address = 0;
  const bool is_gpus = kind == BlockKind::kDevice || kind == BlockKind::kPool;
  const hip::Result result =
      Memory().Allocate(kind, gpu, bytes, &address, is_gpus && bytes < kSmall ? kLead : 0);
  *answer = PointerTo(address);
  return result;
}

struct PieceWanted {
  int device;
  bool has_descriptor;
};
PieceWanted Read(const void* prop) {
  if (kVersion < hip::kVersionTypeFirst) {
    const auto* wanted = static_cast<const hip::MemAllocationPropOld*>(prop);
    return {wanted->location.id, wanted->requested_handle_type == hip::kHandleTypePosixFd};
  }
  const auto* wanted = static_cast<const hip::MemAllocationProp*>(prop);
  return {wanted->location.id, (wanted->requested_handle_types & hip::kHandleTypePosixFd) != 0};
}

struct FakeExternalMemory {
  Address address = 0;
  uint64_t bytes = 0;
};

}  // namespace
}  // namespace gantry::fake_hip

using namespace gantry::fake_hip;
namespace hip = gantry::gpu::hip;
namespace fake_gpu = gantry::fake_gpu;

extern "C" {

hip::Result hipMalloc(void** address, size_t bytes) {
  return CallOnDevice("hipMalloc", [&](FakeContext& context) {
    return Make(BlockKind::kDevice, context.gpu, bytes, address);
  });
}
hip::Result hipMallocManaged(void** address, size_t bytes, unsigned) {
  return CallOnDevice("hipMallocManaged", [&](FakeContext& context) {
    return Make(BlockKind::kManaged, context.gpu, bytes, address);
  });
}
hip::Result hipMallocAsync(void** address, size_t bytes, hip::Stream) {
  return CallOnDevice("hipMallocAsync", [&](FakeContext& context) {
    return Make(BlockKind::kPool, context.gpu, bytes, address);
  });
}
hip::Result hipHostMalloc(void** address, size_t bytes, unsigned) {
  return CallOnDevice("hipHostMalloc", [&](FakeContext& context) {
    return Make(BlockKind::kPinned, context.gpu, bytes, address);
  });
}
hip::Result hipFree(void* address) {
  return CallOnDevice("hipFree", [&](FakeContext&) {
    const auto block = Memory().Around(AddressOf(address));
    if (block && block->kind == BlockKind::kImported) return Memory().Detach(AddressOf(address));
    return Memory().Free(AddressOf(address));
  });
}
hip::Result hipHostFree(void* host) {
  return Call("hipHostFree", [&] { return Memory().Free(AddressOf(host)); });
}

hip::Result hipHostRegister(void* host, size_t bytes, unsigned) {
  return CallOnDevice("hipHostRegister",
                      [&](FakeContext&) { return Memory().Register(host, bytes); });
}
hip::Result hipHostUnregister(void* host) {
  return CallOnDevice("hipHostUnregister", [&](FakeContext&) { return Memory().Unregister(host); });
}
hip::Result hipHostGetDevicePointer(void** address, void* host, unsigned) {
  return Call("hipHostGetDevicePointer", [&] {
    const Address at = AddressOf(host);
    const auto block = Memory().Around(at);
    if (!block) return hip::kInvalidValue;
    *address = PointerTo(
        block->kind == BlockKind::kRegistered ? block->on_device + (at - block->base) : at);
    return hip::kSuccess;
  });
}

hip::Result hipMemAddressReserve(void** address, size_t bytes, size_t, void*, unsigned long long) {
  return Call("hipMemAddressReserve", [&] {
    Address reserved = 0;
    const hip::Result result = Memory().Reserve(bytes, &reserved);
    *address = PointerTo(reserved);
    return result;
  });
}
hip::Result hipMemAddressFree(void* address, size_t bytes) {
  return Call("hipMemAddressFree",
              [&] { return Memory().FreeReservation(AddressOf(address), bytes); });
}
hip::Result hipMemCreate(hip::MemHandle* piece, size_t bytes, const void* prop,
                         unsigned long long) {
  return Call("hipMemCreate", [&] {
    const PieceWanted wanted = Read(prop);
    if (!IsDevice(wanted.device)) return hip::kInvalidDevice;
    fake_gpu::PieceId made = 0;
    const hip::Result result =
        Memory().CreatePiece(GpuAt(wanted.device), bytes, wanted.has_descriptor, &made);
    *piece = HandleOf(made);
    return result;
  });
}
hip::Result hipMemRelease(hip::MemHandle piece) {
  return Call("hipMemRelease", [&] { return Memory().ReleasePiece(IdOf(piece)); });
}
hip::Result hipMemMap(void* address, size_t bytes, size_t offset, hip::MemHandle piece,
                      unsigned long long) {
  return Call("hipMemMap", [&] {
    if (offset != 0) return hip::kInvalidValue;
    return Memory().Map(AddressOf(address), bytes, IdOf(piece));
  });
}
hip::Result hipMemUnmap(void* address, size_t bytes) {
  return Call("hipMemUnmap", [&] { return Memory().Unmap(AddressOf(address), bytes); });
}
hip::Result hipMemSetAccess(void* address, size_t bytes, const hip::MemAccessDesc* accesses,
                            size_t count) {
  return Call("hipMemSetAccess", [&] {
    std::set<int> gpus;
    for (size_t i = 0; i < count; ++i) {
      if (!IsDevice(accesses[i].location.id)) return hip::kInvalidDevice;
      gpus.insert(GpuAt(accesses[i].location.id));
    }
    return Memory().SetAccess(AddressOf(address), bytes, gpus);
  });
}
hip::Result hipMemRetainAllocationHandle(hip::MemHandle* piece, void* address) {
  return Call("hipMemRetainAllocationHandle", [&] {
    fake_gpu::PieceId found = 0;
    const hip::Result result = Memory().RetainPiece(AddressOf(address), &found);
    *piece = HandleOf(found);
    return result;
  });
}
hip::Result hipMemExportToShareableHandle(void* shareable, hip::MemHandle piece, int type,
                                          unsigned long long) {
  return Call("hipMemExportToShareableHandle", [&] {
    if (type != hip::kHandleTypePosixFd) return hip::kInvalidValue;
    return Memory().ExportPiece(IdOf(piece), static_cast<int*>(shareable));
  });
}
hip::Result hipMemImportFromShareableHandle(hip::MemHandle* piece, void* shareable, int type) {
  return Call("hipMemImportFromShareableHandle", [&] {
    if (type != hip::kHandleTypePosixFd) return hip::kInvalidValue;
    const int fd = kVersion < hip::kVersionImportByValue
                       ? *static_cast<const int*>(shareable)
                       : static_cast<int>(reinterpret_cast<intptr_t>(shareable));
    fake_gpu::PieceId made = 0;
    const hip::Result result = Memory().ImportPiece(fd, &made);
    *piece = HandleOf(made);
    return result;
  });
}

hip::Result hipImportExternalMemory(hip::ExternalMemory* memory,
                                    const hip::ExternalMemoryHandleDesc* wanted) {
  return CallOnDevice("hipImportExternalMemory", [&](FakeContext& context) -> hip::Result {
    struct stat status = {};
    fake_gpu::MemoryName name;
    name.gpu = Gpus().GpuOf(wanted->handle.fd);
    if (wanted->type != hip::kExternalMemoryOpaqueFd || name.gpu < 0 ||
        ::fstat(wanted->handle.fd, &status) != 0 || wanted->size == 0) {
      return hip::kInvalidValue;
    }
    if (!Gpus().Reaches(context.gpu, name.gpu)) return fake_gpu::kPeerAccessUnsupported;
    name.bytes = wanted->size;
    FakeExternalMemory made;
    made.bytes = wanted->size;
    gantry::UniqueFd file(fake_gpu::Duplicate(wanted->handle.fd));
    const hip::Result attached = Attach(context, name, std::move(file), &made.address);
    if (attached != hip::kSuccess) return attached;
    *memory = reinterpret_cast<hip::ExternalMemory>(new FakeExternalMemory(made));
    return hip::kSuccess;
  });
}
// The buffer and the memory are two references to what is mapped.
hip::Result hipExternalMemoryGetMappedBuffer(void** address, hip::ExternalMemory memory,
                                             const hip::ExternalMemoryBufferDesc* wanted) {
  return CallOnDevice("hipExternalMemoryGetMappedBuffer", [&](FakeContext&) -> hip::Result {
    const auto* const held = reinterpret_cast<const FakeExternalMemory*>(memory);
    // The vendor's takes another offset, and then looks at wrong bounds.
    if (wanted->offset != 0 || wanted->size > held->bytes) return hip::kInvalidValue;
    *address = PointerTo(held->address);
    return Memory().UseAgain(held->address);
  });
}
hip::Result hipDestroyExternalMemory(hip::ExternalMemory memory) {
  return CallOnDevice("hipDestroyExternalMemory", [&](FakeContext&) {
    const auto* const held = reinterpret_cast<const FakeExternalMemory*>(memory);
    const hip::Result result = Memory().Detach(held->address);
    delete held;
    return result;
  });
}

}  // extern "C"
