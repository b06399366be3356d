// What the parts of a small transfer take when nobody serves it: bytes sent to a thread that does
// nothing but send them back, and the copy, made by whoever wants it. No path is faster on the
// machine than these together. Used by one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <thread>

#include "gantryctl/bench_stand.h"
#include "lib/base/input_wait.h"
#include "lib/base/result.h"
#include "lib/base/unique_fd.h"

namespace gantry::gantryctl {

class BenchAlone {
 public:
  // `bytes` go there and back.
  static Result<std::unique_ptr<BenchAlone>> Start(size_t bytes);
  ~BenchAlone();

  // Microseconds of one round trip to a thread that sleeps until something comes.
  Result<double> Echo();
  // Microseconds of the copy of one block between the two workloads' memory of GPUs, by this
  // thread, which asks until it is done. REQUIRES that both are on GPUs.
  static Result<double> Copy(const BenchStand& stand, const BenchOptions& options, uint64_t local,
                             uint64_t remote, uint64_t block_bytes);

 private:
  BenchAlone(UniqueFd here, UniqueFd there, size_t bytes);

  const UniqueFd here_;
  const UniqueFd there_;
  const size_t bytes_;
  InputWait wait_;  // as libgantry
  std::thread thread_;
};

}  // namespace gantry::gantryctl
