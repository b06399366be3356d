// The copying process: the sidecar's own binary, started with kCopyWorkerFlag by WorkerProcess.
// main() must check for it first. Thread-safe.
#pragma once

#include <string_view>

namespace gantry::worker {

inline constexpr std::string_view kCopyWorkerFlag = "--copy-worker";

// A worker's descriptors besides 0, 1 and 2; it closes all others.
inline constexpr int kControlFd = 3;   // SOCK_SEQPACKET to the pool
inline constexpr int kRingFd = 4;      // memfd of RingLayout
inline constexpr int kDoorbellFd = 5;  // memfd of Doorbell
inline constexpr int kFirstFreeFd = 6;

// Exit codes of a worker that ends by itself.
enum WorkerExit : int {
  kExitPoolGone = 0,
  kExitBadStart = 64,
  kExitCorruptRing = 65,
  kExitBadRequest = 66,
  kExitGpuFailed = 67,  // a GPU operation failed
  kExitNoThread = 68,   // a thread could not be created; the GPU driver was not called
};

// True when this process was started as a worker.
bool IsCopyWorker(int argc, char** argv);
// Runs until the pool closes the control socket; returns the exit code. Arguments: kCopyWorkerFlag,
// index, spin in nanoseconds, log level.
int RunCopyWorker(int argc, char** argv);

}  // namespace gantry::worker
