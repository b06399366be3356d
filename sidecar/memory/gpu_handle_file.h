// A driver's handle of a GPU allocation as a descriptor, so that it is handed on, counted and taken
// back like every other allocation's: a small sealed file that holds the handle. Thread-safe.
#pragma once

#include <string_view>

#include "lib/base/result.h"
#include "lib/base/unique_fd.h"
#include "lib/gpu/shared/gpu_types.h"

namespace gantry::memory {

// REQUIRES as many bytes as a handle has.
Result<UniqueFd> MakeHandleFile(std::string_view handle);
// Of a file that may have come from anywhere: not_exportable when it cannot be one.
Result<gpu::IpcHandle> ReadHandleFile(int fd);

}  // namespace gantry::memory
