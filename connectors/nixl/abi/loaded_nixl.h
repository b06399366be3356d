// Looks at the NIXL that loads the plugin: versions before 1.0 have another table of functions
// under the same number of the interface. Stateless; thread-safe.
#pragma once

#include "lib/base/result.h"

namespace gantry::nixl {

// `caller`: an address within NIXL's core. kVersionMismatch says what it lacks.
Status CheckLoadedNixl(const void* caller);

}  // namespace gantry::nixl
