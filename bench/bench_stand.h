// Everything that a measurement needs: two sidecars that know each other and a workload at each.
// Used by one thread at a time.
#pragma once

#include <memory>
#include <string>

#include "bench/bench_options.h"
#include "bench/bench_sidecars.h"
#include "bench/bench_workload.h"
#include "lib/base/result.h"

namespace gantry::bench {

struct BenchStand {
  std::unique_ptr<BenchSidecars> sidecars;
  std::unique_ptr<BenchWorkload> local;   // asks for the transfers
  std::unique_ptr<BenchWorkload> remote;  // is read or written

  // The remote buffer, as transfers name it.
  static std::string RemoteName();
  static constexpr const char* kLocalWorkload = "bench-local";
  static constexpr const char* kRemoteWorkload = "bench-remote";

  // Each side has `bytes`, registered as options.buffers buffers with blocks of this size; the peer
  // is up, and several buffers are paired by a view.
  static Result<BenchStand> Build(const BenchOptions& options, uint64_t bytes,
                                  uint64_t block_bytes);
  // Registers each side's bytes again, as one buffer with another block size.
  Status SetBlockSize(uint64_t block_bytes);

  BenchWorkload& source(BenchOptions::Operation operation) const {
    return operation == BenchOptions::Operation::kRead ? *remote : *local;
  }
  BenchWorkload& destination(BenchOptions::Operation operation) const {
    return operation == BenchOptions::Operation::kRead ? *local : *remote;
  }
};

}  // namespace gantry::bench
