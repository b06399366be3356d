// Keeps descriptors 0, 1 and 2 from being a file, a socket or shared memory of this process:
// whoever writes to a standard stream would write into that.
#pragma once

namespace gantry {

// Opens those of them that are closed on /dev/null. A program that calls it first in main has it
// called before the initializers of its libraries, too, which may open descriptors. It cannot be
// linked into a shared library.
void OpenStandardFds();

}  // namespace gantry
