// The copy kernel as NVIDIA's drivers take it: PTX, which the build makes of copy_kernel.cu, and
// the name of its entry. Constants.
#pragma once

#include <string_view>

namespace gantry::gpu {

inline constexpr char kCopyKernelName[] = "gantry_copy_items";
std::string_view CopyKernelPtx();  // a zero byte follows it

}  // namespace gantry::gpu
