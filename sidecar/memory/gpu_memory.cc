#include "sidecar/memory/gpu_memory.h"

#include <unistd.h>

#include <string>
#include <utility>

#include "sidecar/memory/gpu_handle_file.h"

namespace gantry::memory {

Result<GpuMapping> GpuMapping::Create(GpuDevices& devices, const wire::GpuFacts& facts, int fd,
                                      uint64_t size) {
  ASSIGN_OR_RETURN(std::shared_ptr<gpu::GpuContext> context, devices.ContextFor(facts.device_uuid));
  std::unique_ptr<gpu::GpuMemory> memory;
  if (facts.form == wire::GpuExport::kPiece) {
    const gpu::PieceFd piece{fd, size};
    ASSIGN_OR_RETURN(memory, context->MapPieces({&piece, 1}));
  } else if (facts.form == wire::GpuExport::kDmaBuf) {
    ASSIGN_OR_RETURN(memory, context->MapDmaBuf({fd, facts.fd_offset, size}));
  } else {
    if (facts.exporter_pid == ::getpid()) {
      return Fail(ErrorCode::kWorkerLost,
                  "a copy worker has the PID " + std::to_string(facts.exporter_pid) +
                      " that the owner of the GPU memory has in its own namespace: the driver lets "
                      "no two processes of one number share memory",
                  "the worker is replaced by one with another PID; try again");
    }
    ASSIGN_OR_RETURN(const gpu::IpcHandle handle, ReadHandleFile(fd));
    ASSIGN_OR_RETURN(memory, context->OpenIpc(handle));
  }
  if (memory->range().size == size) {
    return GpuMapping(std::move(context), devices.context(), std::move(memory));
  }
  return Fail(ErrorCode::kFdTooShort,
              "the allocation was said to have " + std::to_string(size) +
                  " bytes, the GPU's driver says " + std::to_string(memory->range().size),
              "state base and size of the whole allocation as the driver does, and the offset of a "
              "buffer inside of it");
}

}  // namespace gantry::memory
