// The main of tests with GPUs: this binary is also the copy worker that its pools start. It gives
// the fake driver, if that is the one which is found, a folder for its memory.
#include <gtest/gtest.h>

#include "sidecar/worker/process/copy_worker.h"
#include "tests/fakes/fake_gpu_folder.h"

int main(int argc, char** argv) {
  if (gantry::worker::IsCopyWorker(argc, argv)) return gantry::worker::RunCopyWorker(argc, argv);
  const gantry::testing::FakeGpuFolder folder;
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
