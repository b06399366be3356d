#include "lib/base/crc32c.h"

namespace gantry {

Crc32cFunction Crc32cByInstruction() { return nullptr; }

}  // namespace gantry
