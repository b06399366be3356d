// libhsa-runtime64.so.1 of machines without a GPU, loaded with libamdhip64 as the vendor's is.
#include "tests/fakes/hip/fake_hsa.h"

#include <cstring>

namespace hsa = gantry::gpu::hsa;

namespace gantry::fake_hip {

std::atomic<const HsaCalls*> begun = nullptr;

}  // namespace gantry::fake_hip

using gantry::fake_hip::begun;

extern "C" {

void fake_hsa_begin(const gantry::fake_hip::HsaCalls* calls) { begun = calls; }

hsa::Status hsa_system_get_info(int attribute, void* value) {
  const auto* const calls = begun.load();
  if (calls == nullptr) return hsa::kErrorNotInitialized;
  if (attribute == hsa::kSystemInfoVersionMajor) {
    const uint16_t major = 1;
    std::memcpy(value, &major, sizeof(major));
    return hsa::kSuccess;
  }
  if (attribute != hsa::kSystemInfoDmaBufSupported) return hsa::kErrorInvalidArgument;
  std::memcpy(value, &calls->has_dma_bufs, sizeof(bool));
  return hsa::kSuccess;
}
hsa::Status hsa_status_string(hsa::Status status, const char** text) {
  *text = status == hsa::kSuccess ? "HSA_STATUS_SUCCESS" : "HSA_STATUS_ERROR of the fake";
  return hsa::kSuccess;
}
hsa::Status hsa_amd_pointer_info(const void* address, hsa::PointerInfo* info, void* (*)(size_t),
                                 uint32_t*, uint64_t**) {
  const auto* const calls = begun.load();
  return calls == nullptr ? hsa::kErrorNotInitialized : calls->pointer_info(address, info);
}

}  // extern "C"
