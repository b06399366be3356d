#include "lib/gpu/hip/hip_attach.h"
#include "lib/gpu/hip/hip_device.h"

namespace gantry::gpu {

Status HipApi::CreatePiece(const HipDevice& device, int owner, uint64_t bytes, MemHandle* piece) {
  const hip::MemLocation location = {hip::kLocationTypeDevice, owner};
  if (device.calls().version() < hip::kVersionTypeFirst) {
    hip::MemAllocationPropOld wanted = {};
    wanted.type = hip::kAllocationTypePinned;
    wanted.requested_handle_type = hip::kHandleTypePosixFd;
    wanted.location = location;
    return device.Call(&Functions::mem_create, piece, bytes, &wanted, 0);
  }
  hip::MemAllocationProp wanted = {};
  wanted.type = hip::kAllocationTypePinned;
  wanted.requested_handle_types = hip::kHandleTypePosixFd;
  wanted.location = location;
  return device.Call(&Functions::mem_create, piece, bytes, &wanted, 0);
}

Status HipApi::ImportPiece(const HipDevice& device, const PieceFd& piece, MemHandle* handle) {
  RETURN_IF_ERROR(CheckDmaBufHolds(piece.fd, 0, piece.size));
  int fd = piece.fd;
  void* shareable = device.calls().version() < hip::kVersionImportByValue
                        ? static_cast<void*>(&fd)
                        : reinterpret_cast<void*>(static_cast<intptr_t>(fd));
  return device.Call(&Functions::mem_import_from_shareable_handle, handle, shareable,
                     hip::kHandleTypePosixFd);
}

}  // namespace gantry::gpu
