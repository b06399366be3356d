// The memory of the fake GPUs of a test binary and of the processes that it starts: a folder that
// goes with it. Made in main, before anything loads a driver.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace gantry::testing {

class FakeGpuFolder {
 public:
  FakeGpuFolder() { ::setenv("GANTRY_FAKE_GPU_DIR", path_.c_str(), 1); }
  FakeGpuFolder(const FakeGpuFolder&) = delete;
  FakeGpuFolder& operator=(const FakeGpuFolder&) = delete;
  ~FakeGpuFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

 private:
  static std::string Make() {
    std::string path = "/tmp/gantry-gpus-XXXXXX";
    if (::mkdtemp(path.data()) == nullptr) std::abort();
    return path;
  }

  const std::string path_ = Make();
};

}  // namespace gantry::testing
