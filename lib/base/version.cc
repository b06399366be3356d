#include "lib/base/version.h"

namespace gantry {

std::string_view Version() { return GANTRY_VERSION_TEXT; }

}  // namespace gantry
