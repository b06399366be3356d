// A GPU allocation's driver handle as a descriptor: a small sealed file that contains the handle.
// So handles are passed, counted and released like other descriptors. Thread-safe.
#pragma once

#include <string_view>

#include "lib/base/result.h"
#include "lib/base/unique_fd.h"
#include "lib/gpu/shared/gpu_types.h"

namespace gantry::memory {

// REQUIRES exactly as many bytes as a handle has.
Result<UniqueFd> MakeHandleFile(std::string_view handle);
// Accepts any descriptor; kNotExportable when it is no handle file.
Result<gpu::IpcHandle> ReadHandleFile(int fd);

}  // namespace gantry::memory
