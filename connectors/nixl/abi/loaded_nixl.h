// Looks at the NIXL that loads the plugin: versions before 1.0 have another table of functions
// under the same number of the interface, and later ones may. Stateless; thread-safe.
#pragma once

#include "lib/base/result.h"

namespace gantry::nixl {

// `caller`: an address within NIXL's core. kVersionMismatch says what it lacks. A
// version that is newer than those known is refused where its wheel says it,
// unless `allows_newer`.
Status CheckLoadedNixl(const void* caller, bool allows_newer);

}  // namespace gantry::nixl
