#include "lib/gpu/cuda/mig_slice.h"

#include <gtest/gtest.h>

#include "lib/gpu/memory_origin.h"

namespace gantry::gpu {
namespace {

TEST(MigSlice, IsToldByTheProfileAtTheEndOfTheName) {
  for (const char* const name :
       {"NVIDIA A100-SXM4-40GB MIG 1g.5gb", "NVIDIA A100-SXM4-80GB MIG 3g.40gb",
        "NVIDIA H200 MIG 1c.3g.71gb", "NVIDIA H100 80GB HBM3 MIG 1g.10gb+me"}) {
    EXPECT_TRUE(IsMigSlice(name)) << name;
  }
  for (const char* const name : {"", "NVIDIA H200", "NVIDIA H100 80GB HBM3", "MIG 1g.5gb", "A MIG ",
                                 "A MIG g.5gb", "A MIG 12", "A MIG 3 times"}) {
    EXPECT_FALSE(IsMigSlice(name)) << name;
  }
}

TEST(MigSlice, SharesNoMemory) {
  DeviceInfo device;
  for (const char* const whole : {"GPU-4f1c", "GPU-0000:1b:00.0", ""}) {
    device.uuid = whole;
    EXPECT_EQ(WhyNotShared(device), "") << whole;
  }
  device.uuid = "MIG-4f1c";
  EXPECT_NE(WhyNotShared(device), "");
}

}  // namespace
}  // namespace gantry::gpu
