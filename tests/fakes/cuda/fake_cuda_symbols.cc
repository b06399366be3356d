// How the fake's functions are found: by their plain name and a version, as in the vendor's
// library.
#include <dlfcn.h>

#include <cstdint>
#include <string>

#include "lib/gpu/cuda/cuda_abi.h"
#include "tests/fakes/gpu/fake_gpus.h"
#include "tests/fakes/gpu/fake_results.h"

namespace cuda = gantry::gpu::cuda;

extern "C" cuda::Result cuGetProcAddress_v2(const char* symbol, void** function, int version,
                                            uint64_t, int* status) {
  using gantry::fake_gpu::kNotFound;
  constexpr int kSymbolNotFound = 1;
  const std::string name = symbol;
  *function = nullptr;
  Dl_info self = {};
  ::dladdr(reinterpret_cast<void*>(&cuGetProcAddress_v2), &self);
  void* const library = ::dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  // The version before had another signature, which the fake does not speak.
  const bool is_other_abi = name == "cuMemcpyBatchAsync" && version < 13000;
  const bool is_missing = gantry::fake_gpu::FakeGpus::Instance().SettingOf(name) == kNotFound;
  if (library != nullptr && !is_other_abi && !is_missing) {
    *function = ::dlsym(library, (name + "_v2").c_str());
    if (*function == nullptr) *function = ::dlsym(library, symbol);
  }
  if (library != nullptr) ::dlclose(library);
  if (status != nullptr) *status = *function == nullptr ? kSymbolNotFound : 0;
  return *function == nullptr ? kNotFound : cuda::kSuccess;
}
