// Memory of other processes on its way into this one, with the faults of the vendor's that a test
// can ask for. Thread-safe.
#pragma once

#include "tests/fakes/hip/fake_hip.h"

namespace gantry::fake_hip {

// GANTRY_FAKE_GPU_FAIL has two settings for it: concurrent_attaches_mix=1, where one that begins
// beside another one maps the other's memory, and attaches_are_wrong=1, where each maps memory that
// is nobody's.
hip::Result Attach(FakeContext& context, fake_gpu::MemoryName name, UniqueFd file,
                   Address* address);

}  // namespace gantry::fake_hip
