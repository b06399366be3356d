// The fake driver with settings of a test's own. A case is a process of its own (EXPECT_EXIT),
// which ends by _exit(0), or by what HOLDS finds. One thread at a time.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <string>

#include "lib/gpu/gpu_drivers.h"

namespace gantry::gpu {

#define HOLDS(condition)                         \
  if (!(condition)) {                            \
    std::fprintf(stderr, "not: %s", #condition); \
    ::_exit(1);                                  \
  }

class GpuDriversTest : public ::testing::Test {
 protected:
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    if (::getenv("GANTRY_FAKE_GPU_DIR") != nullptr) return;  // one of those processes
    ASSERT_NE(::mkdtemp(folder_.data()), nullptr);
    ::setenv("GANTRY_FAKE_GPU_DIR", folder_.c_str(), 1);
  }
  void TearDown() override {
    std::filesystem::remove_all(folder_);
    ::unsetenv("GANTRY_FAKE_GPU_DIR");
  }

  static void With(const char* failures) { ::setenv("GANTRY_FAKE_GPU_FAIL", failures, 1); }

  std::string folder_ = "/dev/shm/gantry-fake-gpu-XXXXXX";
};

}  // namespace gantry::gpu
