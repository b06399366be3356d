// Where a thread of a kernel is on an AMD GPU; copy_kernel.cu is compiled behind it. Without
// ROCm's headers: what they would declare is written out. Device code.
#pragma once

namespace gantry::gpu::copy_kernel {

__attribute__((device)) inline unsigned ThreadInBlock() { return __builtin_amdgcn_workitem_id_x(); }
__attribute__((device)) inline unsigned Block() { return __builtin_amdgcn_workgroup_id_x(); }
__attribute__((device)) inline unsigned ThreadsOfBlock() {
  return __builtin_amdgcn_workgroup_size_x();
}
__attribute__((device)) inline unsigned Blocks() {
  return __builtin_amdgcn_grid_size_x() / __builtin_amdgcn_workgroup_size_x();
}
// 64 on the GPUs of data centres, 32 on others: hip_device.cc says it to the compiler, as versions
// of that have different names for it.
__attribute__((device)) inline unsigned Lanes() { return GANTRY_WARP_THREADS; }

}  // namespace gantry::gpu::copy_kernel
