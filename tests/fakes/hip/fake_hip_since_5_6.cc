// What libamdhip64 has from ROCm 5.6 on.
#include "tests/fakes/hip/fake_hip.h"

using namespace gantry::fake_hip;
namespace hip = gantry::gpu::hip;

extern "C" {

hip::Result hipStreamGetDevice(hip::Stream stream, hip::Device* device) {
  return CallOnDevice("hipStreamGetDevice", [&](FakeContext& context) {
    *device = HolderOf(context, stream)->context()->ordinal;
    return hip::kSuccess;
  });
}

}  // extern "C"
