// Gives the fake driver, if that is the one which is found, a folder for its memory.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>

int main(int argc, char** argv) {
  // The fake's memory, which the vendor's driver knows nothing of.
  std::string folder = "/dev/shm/gantry-fake-gpu-XXXXXX";
  const bool is_first = ::getenv("GANTRY_FAKE_GPU_DIR") == nullptr;
  if (is_first) {
    if (::mkdtemp(folder.data()) == nullptr) return 1;
    ::setenv("GANTRY_FAKE_GPU_DIR", folder.c_str(), 1);
  }
  testing::InitGoogleTest(&argc, argv);
  const int failed = RUN_ALL_TESTS();
  if (is_first) std::filesystem::remove_all(folder);
  return failed;
}
