// Where a thread of a kernel is on an NVIDIA GPU; copy_kernel.cu is compiled behind it. Without a
// toolkit: what its headers would declare is written out. Device code.
#pragma once

namespace gantry::gpu::copy_kernel {

__attribute__((device)) inline unsigned ThreadInBlock() { return __nvvm_read_ptx_sreg_tid_x(); }
__attribute__((device)) inline unsigned Block() { return __nvvm_read_ptx_sreg_ctaid_x(); }
__attribute__((device)) inline unsigned ThreadsOfBlock() { return __nvvm_read_ptx_sreg_ntid_x(); }
__attribute__((device)) inline unsigned Blocks() { return __nvvm_read_ptx_sreg_nctaid_x(); }
__attribute__((device)) inline unsigned Lanes() { return 32; }

}  // namespace gantry::gpu::copy_kernel
