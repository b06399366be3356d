// The settings of the copy scheduler. A plain value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "lib/base/clock.h"
#include "sidecar/copy/gpu_copy_planner.h"
#include "sidecar/worker/channel/gpu_copy_costs.h"

namespace gantry::transport {

struct CopySchedulerOptions {
  uint64_t job_bytes_max = 512 << 10;  // copied between two completions
  size_t job_segments_max = 128;
  uint64_t inflight_bytes_max = 8 << 20;  // per worker: bounds cancel and priority delay
  size_t inflight_jobs_max = 64;          // per worker
  // Jobs of copy engines, per worker. It always has a next one, and faster workers take the rest.
  size_t engine_jobs_max = 3;
  // Bytes between GPUs count for less in what is in flight: they move faster.
  uint64_t gpu_bytes_weigh = 64;
  // Between GPUs an operation posts so much in a row, so that several end one after the other, and
  // not all at the end, where each waits for whichever worker is last. It waits for the turns of
  // those of its own size: of up to so many bytes, of up to eight times as many, and so on.
  uint64_t gpu_turn_bytes = 512 << 20;
  uint64_t small_bytes_max = 16 << 20;
  GpuCopyPolicy gpu_copies = GpuCopyPolicy::kAuto;
  // The costs of copies of this GPU, an index among the pool's GPUs. Called by any thread.
  std::function<worker::GpuCopyCosts(int gpu)> costs_of = [](int) {
    return worker::GpuCopyCosts();
  };
  TimePoint (*now)() = &Clock::now;  // for tests
};

}  // namespace gantry::transport
