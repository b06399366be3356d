// Where an ShmTransport rehearses. Belongs to the driver.
#pragma once

#include <cstdint>
#include <vector>

#include "sidecar/transport/rehearsal_pool.h"
#include "sidecar/transport/shm_transport.h"

namespace gantry::transport {

// A transport like this one over workers that copy nothing: what a rehearsal does stays in it.
struct ShmTransport::Stage {
  Stage(const ShmOptions& options, worker::CopyPool& real) : pool(real), copies(options, pool) {}

  RehearsalPool pool;
  ShmTransport copies;
  std::vector<uint64_t> attention;
};

}  // namespace gantry::transport
