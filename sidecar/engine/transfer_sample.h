// What the metrics learn of a transfer that ended. Stateless; called by the engine's driver.
#pragma once

#include "sidecar/engine/transfer.h"
#include "sidecar/metrics/metrics.h"

namespace gantry::engine {

metrics::TransferSample SampleOf(const Transfer& transfer, TimePoint now);

}  // namespace gantry::engine
