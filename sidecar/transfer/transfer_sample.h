// What the metrics learn of a transfer that ended. Stateless; called by the engine's driver.
#pragma once

#include "sidecar/metrics/metrics.h"
#include "sidecar/transfer/transfer.h"

namespace gantry::engine {

metrics::TransferSample SampleOf(const Transfer& transfer, TimePoint now);

}  // namespace gantry::engine
