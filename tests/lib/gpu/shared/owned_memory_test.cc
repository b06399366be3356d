// What one call gives back is given back once, whoever asks and whatever comes of it.
#include "lib/gpu/shared/owned_memory.h"

#include <gtest/gtest.h>

#include <memory>

namespace gantry::gpu {
namespace {

constexpr AddressRange kRange{DeviceAddress{0x1000}, 64};

class OwnedMemoryTest : public ::testing::Test {
 protected:
  std::unique_ptr<GpuHostMemory> Make(Status answer = {}) {
    return std::make_unique<OwnedMemory>(kRange, kStaysPinned, [this, answer] {
      ++given_back_;
      return answer;
    });
  }
  int given_back_ = 0;
};

TEST_F(OwnedMemoryTest, IsGivenBackWhenItEnds) {
  auto memory = Make();
  EXPECT_EQ(memory->range().base, kRange.base);
  EXPECT_EQ(memory->range().size, kRange.size);
  EXPECT_EQ(given_back_, 0);
  memory.reset();
  EXPECT_EQ(given_back_, 1);
}

TEST_F(OwnedMemoryTest, IsGivenBackOnceWhenItsUserAskedForIt) {
  auto memory = Make();
  EXPECT_TRUE(memory->Unregister());
  EXPECT_TRUE(memory->Unregister());
  memory.reset();
  EXPECT_EQ(given_back_, 1);
}

// The driver may have let go of a part of it: a second call would say something else.
TEST_F(OwnedMemoryTest, WhatFailedIsToldOnceAndNotTriedAgain) {
  auto memory = Make(Fail(ErrorCode::kDeviceError, "the driver holds on"));
  const Status asked = memory->Unregister();
  ASSERT_FALSE(asked);
  EXPECT_EQ(asked.error().message, "the driver holds on");
  EXPECT_TRUE(memory->Unregister());
  memory.reset();
  EXPECT_EQ(given_back_, 1);
}

}  // namespace
}  // namespace gantry::gpu
