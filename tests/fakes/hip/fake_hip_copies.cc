// libamdhip64 of machines without a GPU: copies, and the copy kernel.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <thread>
#include <vector>

#include "lib/gpu/shared/copy_kernel_source.h"
#include "tests/fakes/gpu/fake_kernels.h"
#include "tests/fakes/hip/fake_code.h"
#include "tests/fakes/hip/fake_hip.h"

namespace gantry::fake_hip {

// As the vendor's runtime ends a process whose kernel touched what it must not.
void Fault(FakeContext& context, hip::Result) {
  std::fprintf(stderr, "Memory access fault by GPU node-%d (fake) on address (nil).\n",
               context.gpu + 1);
  std::abort();
}

namespace {

constexpr hip::Result kSymbolNotFound = 500;
constexpr std::chrono::milliseconds kUploadDelay{2};
constexpr size_t kStagedBytesMax = 64 << 10;  // which the runtime takes along and returns

bool IsKnown(Address address) { return Memory().Around(address).has_value(); }

}  // namespace

hip::Result CheckCopy(Address to, Address from, size_t bytes) {
  const hip::Result result = Memory().CheckCopy(to, bytes);
  return result == hip::kSuccess ? Memory().CheckCopy(from, bytes) : result;
}

void Move(Address to, Address from, size_t bytes) {
  std::memmove(PointerTo(to), PointerTo(from), bytes);
}

}  // namespace gantry::fake_hip

using namespace gantry::fake_hip;
namespace hip = gantry::gpu::hip;
namespace fake_gpu = gantry::fake_gpu;

extern "C" {

hip::Result hipMemcpyAsync(void* to, const void* from, size_t bytes, int kind, hip::Stream stream) {
  return CallOnDevice("hipMemcpyAsync", [&](FakeContext& context) {
    const Address target = AddressOf(to);
    const Address source = AddressOf(from);
    if (kind != hip::kMemcpyDefault) return hip::kInvalidValue;  // nobody here gives another one
    if (const hip::Result wrong = CheckCopy(target, source, bytes); wrong != 0) return wrong;
    FakeStream& on = *HolderOf(context, stream);
    if (IsKnown(source)) {
      on.Submit([=] { Move(target, source, bytes); });
      return hip::kSuccess;
    }
    const auto* data = static_cast<const char*>(from);
    on.Submit([target, taken = std::vector<char>(data, data + bytes)] {
      std::this_thread::sleep_for(kUploadDelay);
      std::memcpy(PointerTo(target), taken.data(), taken.size());
    });
    if (bytes > kStagedBytesMax) on.Synchronize();
    return hip::kSuccess;
  });
}
hip::Result hipMemsetAsync(void* to, int value, size_t bytes, hip::Stream stream) {
  return CallOnDevice("hipMemsetAsync", [&](FakeContext& context) {
    if (const hip::Result wrong = Memory().CheckCopy(AddressOf(to), bytes); wrong != 0)
      return wrong;
    HolderOf(context, stream)->Submit([=] { std::memset(to, value, bytes); });
    return hip::kSuccess;
  });
}
hip::Result hipMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                             size_t width, size_t height, int, hip::Stream stream) {
  return CallOnDevice("hipMemcpy2DAsync", [&](FakeContext& context) {
    if (width == 0 || height == 0) return hip::kSuccess;
    const Address target = AddressOf(to);
    const Address source = AddressOf(from);
    for (const auto& [at, pitch] : {std::pair{target, to_pitch}, {source, from_pitch}}) {
      size_t last_row = 0;
      size_t bytes = 0;
      if (pitch < width || !IsKnown(at) || __builtin_mul_overflow(pitch, height - 1, &last_row) ||
          __builtin_add_overflow(last_row, width, &bytes) || Memory().CheckCopy(at, bytes) != 0) {
        return hip::kInvalidValue;
      }
    }
    HolderOf(context, stream)->Submit([=] {
      for (size_t row = height; row-- > 0;)  // in an order that nobody may rely on
        Move(target + row * to_pitch, source + row * from_pitch, width);
    });
    return hip::kSuccess;
  });
}

hip::Result hipModuleLoadData(hip::Module* module, const void* image) {
  return CallOnDevice("hipModuleLoadData", [&](FakeContext& context) {
    constexpr hip::Result kInvalidImage = 200;
    const Code* const code = Code::In(image);
    if (code == nullptr) return kInvalidImage;
    *module = static_cast<hip::Module>(fake_gpu::LoadModule(context, code->warp_threads));
    return hip::kSuccess;
  });
}
hip::Result hipModuleUnload(hip::Module module) {
  return CallOnDevice("hipModuleUnload", [&](FakeContext& context) {
    if (!fake_gpu::IsLoaded(module, context)) return hip::kInvalidHandle;
    fake_gpu::UnloadModule(module);
    return hip::kSuccess;
  });
}
hip::Result hipModuleGetFunction(hip::Function* function, hip::Module module, const char* name) {
  return CallOnDevice("hipModuleGetFunction", [&](FakeContext& context) {
    if (!fake_gpu::IsLoaded(module, context)) return hip::kInvalidHandle;
    if (std::string_view(name) != gantry::gpu::kCopyKernelName) return kSymbolNotFound;
    *function = reinterpret_cast<hip::Function>(module);
    return hip::kSuccess;
  });
}
hip::Result hipModuleLaunchKernel(hip::Function function, unsigned grid_x, unsigned grid_y,
                                  unsigned grid_z, unsigned block_x, unsigned block_y,
                                  unsigned block_z, unsigned, hip::Stream stream, void** arguments,
                                  void**) {
  return CallOnDevice("hipModuleLaunchKernel", [&](FakeContext& context) {
    if (!fake_gpu::IsLoaded(function, context)) return hip::kInvalidHandle;
    const fake_gpu::Launch launch = {
        {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, arguments};
    return fake_gpu::LaunchCopyKernel(function, context, *HolderOf(context, stream), launch, Fault);
  });
}

}  // extern "C"
