// The tests' main: this binary is also the copy worker that the pools under test start.
#include <gtest/gtest.h>

#include "sidecar/worker/process/copy_worker.h"

int main(int argc, char** argv) {
  if (gantry::worker::IsCopyWorker(argc, argv)) return gantry::worker::RunCopyWorker(argc, argv);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
