// What libamdhip64 has from ROCm 7 and 7.1 on.
#include <array>
#include <utility>
#include <vector>

#include "tests/fakes/hip/fake_hip.h"

using namespace gantry::fake_hip;
namespace hip = gantry::gpu::hip;
namespace fake_gpu = gantry::fake_gpu;

extern "C" {

hip::Result hipStreamGetId(hip::Stream stream, unsigned long long* id) {
  return CallOnDevice("hipStreamGetId", [&](FakeContext& context) {
    FakeStream* const asked = HolderOf(context, stream).get();
    const hip::Result spoilt = fake_gpu::SpoilCaptureOf(asked);
    if (spoilt == hip::kSuccess) *id = asked->id();
    return spoilt;
  });
}
hip::Result hipMemcpyBatchAsync(void** to, void** from, size_t* bytes, size_t count,
                                void* attributes, size_t*, size_t attribute_count, size_t*,
                                hip::Stream stream) {
  return CallOnDevice("hipMemcpyBatchAsync", [&](FakeContext& context) {
    // Attributes are not supported.
    if (count == 0 || attributes != nullptr || attribute_count != 0 || stream == nullptr) {
      return hip::kInvalidValue;
    }
    std::vector<std::array<Address, 3>> items;
    for (size_t i = 0; i < count; ++i) {
      const std::array<Address, 3> item = {AddressOf(to[i]), AddressOf(from[i]), bytes[i]};
      if (bytes[i] == 0 || CheckCopy(item[0], item[1], item[2]) != 0) return hip::kInvalidValue;
      items.push_back(item);
    }
    HolderOf(context, stream)->Submit([items = std::move(items)] {
      // In an order that nobody may rely on.
      for (auto item = items.rbegin(); item != items.rend(); ++item)
        Move((*item)[0], (*item)[1], (*item)[2]);
    });
    return hip::kSuccess;
  });
}

}  // extern "C"
