// Compiled once for each release of ROCm that the fake acts.
#include "tests/fakes/hip/fake_hip.h"

namespace gantry::fake_hip {

const int kVersion = FAKE_HIP_VERSION;

}  // namespace gantry::fake_hip
