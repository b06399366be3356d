// Which GPUs a process sees, as AMD's libraries read the environment.
#include <cstdlib>
#include <string>

#include "tests/fakes/gpu/fake_gpus.h"

namespace gantry::fake_gpu {

// One library chooses, and the other one of what that has left.
std::vector<int> ChosenGpus(int gpus) {
  std::vector<int> all;
  for (int gpu = 0; gpu < gpus; ++gpu) all.push_back(gpu);
  const std::vector<int> left = ChosenBy("ROCR_VISIBLE_DEVICES", all);
  const bool has_own = ::getenv("HIP_VISIBLE_DEVICES") != nullptr;
  return ChosenBy(has_own ? "HIP_VISIBLE_DEVICES" : "CUDA_VISIBLE_DEVICES", left);
}

std::string DeviceFileOf(int gpu) { return "dri/renderD" + std::to_string(128 + gpu); }

}  // namespace gantry::fake_gpu
