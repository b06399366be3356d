// The fake driver with settings of a test's own. A case is a process of its own (EXPECT_EXIT),
// which ends by _exit(0), or by what HOLDS finds. One thread at a time.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>

#include "lib/gpu/gpu_drivers.h"
#include "tests/fakes/fake_gpu_folder.h"

namespace gantry::gpu {

inline constexpr uint64_t kMiB = uint64_t{1} << 20;

#define HOLDS(condition)                         \
  if (!(condition)) {                            \
    std::fprintf(stderr, "not: %s", #condition); \
    ::_exit(1);                                  \
  }

class GpuDriversTest : public ::testing::Test {
 protected:
  // One folder for all of them: a library that stays loaded goes on with it.
  void SetUp() override {
    static const testing::FakeGpuFolder folder;  // which those processes are given
    GTEST_FLAG_SET(death_test_style, "threadsafe");
  }

  static void With(const char* failures) { ::setenv("GANTRY_FAKE_GPU_FAIL", failures, 1); }
};

}  // namespace gantry::gpu
