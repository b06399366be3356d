// The memory of the fake GPUs of a test binary and of the processes that it starts, which know
// nothing of a vendor's driver: a folder that goes with it, or, in a process that was given one,
// that one. Made before anything loads a driver, by the only thread.
#pragma once

#include <cstdlib>
#include <optional>

#include "tests/fakes/test_folder.h"

namespace gantry::testing {

class FakeGpuFolder {
 public:
  FakeGpuFolder() {
    if (::getenv(kVariable) != nullptr) return;
    folder_.emplace("/dev/shm/gantry-gpus-");
    ::setenv(kVariable, folder_->path().c_str(), 1);
  }
  ~FakeGpuFolder() {
    if (folder_) ::unsetenv(kVariable);
  }

 private:
  static constexpr const char* kVariable = "GANTRY_FAKE_GPU_DIR";

  std::optional<TestFolder> folder_;
};

}  // namespace gantry::testing
