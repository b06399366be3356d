// What libhsa-runtime64 has from ROCm 5.6 on.
#include "tests/fakes/hip/fake_hsa.h"

namespace hsa = gantry::gpu::hsa;
using gantry::fake_hip::begun;

extern "C" {

hsa::Status hsa_amd_portable_export_dmabuf(const void* address, size_t bytes, int* fd,
                                           uint64_t* offset) {
  const auto* const calls = begun.load();
  return calls == nullptr ? hsa::kErrorNotInitialized
                          : calls->export_dma_buf(address, bytes, fd, offset);
}

}  // extern "C"
