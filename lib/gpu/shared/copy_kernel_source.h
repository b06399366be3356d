// The copy kernel as drivers take it, which the build makes of copy_kernel.cu, and the name of its
// entry. Constants.
#pragma once

#include <string_view>

namespace gantry::gpu {

inline constexpr char kCopyKernelName[] = "gantry_copy_items";
std::string_view CopyKernelPtx();  // for NVIDIA's drivers; a zero byte follows it
// For AMD's compiler: C++ without an include. A zero byte follows it, too.
std::string_view CopyKernelSource();

}  // namespace gantry::gpu
