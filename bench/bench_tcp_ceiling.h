// The ceilings of moving blocks over loopback TCP on this machine: plain send and recv of the same
// ranges, and iperf3. Stateless; thread-safe.
#pragma once

#include <optional>

#include "bench/bench_ceiling.h"
#include "lib/base/result.h"

namespace gantry::bench {

// Each of the `streams` connections carries its share of the blocks, a thread at both of its ends.
// Seconds from the moment all threads are ready until the last block has arrived.
Result<double> SendWithStreams(const CopyWork& work, int streams);

// GB/s of iperf3 with so many streams on 127.0.0.1; nothing when it is not installed.
std::optional<double> IperfGigabytes(int streams);

}  // namespace gantry::bench
