// Gives the fake driver, if that is the one which is found, a folder for its memory.
#include <gtest/gtest.h>

#include "tests/fakes/fake_gpu_folder.h"

int main(int argc, char** argv) {
  const gantry::testing::FakeGpuFolder folder;
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
