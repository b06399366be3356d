#include "lib/gpu/cuda/cuda_primary.h"

namespace gantry::gpu {

Status CudaApi::CreatePiece(const CudaPrimary& primary, cuda::Device owner, uint64_t bytes,
                            MemHandle* piece) {
  cuda::MemAllocationProp wanted = {};
  wanted.type = cuda::kAllocationTypePinned;
  wanted.requested_handle_types = cuda::kHandleTypePosixFd;
  wanted.location = {cuda::kLocationTypeDevice, owner};
  return primary.Call(&Functions::mem_create, piece, bytes, &wanted, 0);
}

// The driver takes the number of a descriptor as a pointer here.
Status CudaApi::ImportPiece(const CudaPrimary& primary, const PieceFd& piece, MemHandle* handle) {
  return primary.Call(&Functions::mem_import_from_shareable_handle, handle,
                      reinterpret_cast<void*>(static_cast<intptr_t>(piece.fd)),
                      cuda::kHandleTypePosixFd);
}

}  // namespace gantry::gpu
