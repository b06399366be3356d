// Converts an ended transfer to its metrics sample. Stateless; called by the driver.
#pragma once

#include "sidecar/metrics/metrics.h"
#include "sidecar/transfer/transfer.h"

namespace gantry::engine {

metrics::TransferSample SampleOf(const Transfer& transfer, TimePoint now);

}  // namespace gantry::engine
