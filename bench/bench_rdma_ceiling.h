// What RDMA devices carry without Gantry: perftest, from this machine to itself over the first
// device with an active port. Used by one thread at a time.
#pragma once

#include <cstdint>

#include "bench/bench_options.h"
#include "lib/base/result.h"

namespace gantry::bench {

// Seconds that so many bytes take in messages of this size, as ib_write_bw or ib_read_bw measures
// it now. kNotFound without a device or without perftest.
Result<double> MoveWithPerftest(BenchOptions::Operation operation, uint64_t message_bytes,
                                uint64_t bytes);

}  // namespace gantry::bench
