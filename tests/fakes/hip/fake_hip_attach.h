// Memory of other processes on its way into this one, with the faults of the vendor's that a test
// can ask for. Thread-safe.
#pragma once

#include "tests/fakes/hip/fake_hip.h"

namespace gantry::fake_hip {

// GANTRY_FAKE_GPU_FAIL has settings for it: concurrent_attaches_mix=1, where one that begins beside
// another one of its process maps the other's memory; attaches_beside_others_are_wrong=1, where one
// that begins beside another one of any process maps memory that is nobody's; and
// attaches_are_wrong=1, where each does.
hip::Result Attach(FakeContext& context, fake_gpu::MemoryName name, UniqueFd file,
                   Address* address);

}  // namespace gantry::fake_hip
