// The process that copies: the sidecar's own binary, started with kCopyWorkerFlag by WorkerProcess.
// The main function hands over before it does anything else. Thread-safe.
#pragma once

#include <string_view>

namespace gantry::worker {

inline constexpr std::string_view kCopyWorkerFlag = "--copy-worker";

// Descriptors of a worker besides 0, 1 and 2; every other one is closed.
inline constexpr int kControlFd = 3;   // SOCK_SEQPACKET to the pool
inline constexpr int kRingFd = 4;      // memfd of RingLayout
inline constexpr int kDoorbellFd = 5;  // memfd of Doorbell
inline constexpr int kFirstFreeFd = 6;

// How a worker ends of itself; a signal ends it otherwise.
enum WorkerExit : int {
  kExitPoolGone = 0,
  kExitBadStart = 64,
  kExitCorruptRing = 65,
  kExitBadRequest = 66,
  kExitGpuFailed = 67,  // a GPU did not do what it was given
  kExitNoThread = 68,   // there was none to be had; the GPU's driver was not asked
};

// True when this process was started as a worker.
bool IsCopyWorker(int argc, char** argv);
// Works until the pool closes the control socket; returns the exit code.
// Arguments: kCopyWorkerFlag, index, spin in nanoseconds, log level.
int RunCopyWorker(int argc, char** argv);

}  // namespace gantry::worker
