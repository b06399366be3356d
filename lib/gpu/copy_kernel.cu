// The copy kernel for NVIDIA GPUs. Compiled to PTX by clang without a toolkit, so that what a
// toolkit's headers would declare is written out.
#pragma clang force_cuda_host_device begin
#include "lib/gpu/copy_kernel.h"
#pragma clang force_cuda_host_device end

namespace gantry::gpu::copy_kernel {
namespace {

constexpr Uint32 kLanes = 32;

// Global memory, also of peers and of the host. Said, because the address of an item alone does not
// tell the compiler, and instructions for any kind of memory are slower.
struct GlobalMemory {
  template <typename T>
  using Pointer = T __attribute__((address_space(1)))*;

  template <typename T>
  __attribute__((device)) T Load(Uint64 address) const {
    return *reinterpret_cast<Pointer<const T>>(address);
  }
  template <typename T>
  __attribute__((device)) void Store(Uint64 address, T value) const {
    *reinterpret_cast<Pointer<T>>(address) = value;
  }
};

}  // namespace

// cuda_stream.cc launches it.
extern "C" __attribute__((global, launch_bounds(kBlockThreads))) void gantry_copy_items(
    Uint64 items, Uint32 count, Uint64 longest) {
  const Uint32 thread = __nvvm_read_ptx_sreg_tid_x();
  const Uint64 warps_per_block = __nvvm_read_ptx_sreg_ntid_x() / kLanes;
  Position at;
  at.lane = thread % kLanes;
  at.lanes = kLanes;
  at.warp = __nvvm_read_ptx_sreg_ctaid_x() * warps_per_block + thread / kLanes;
  at.warps = __nvvm_read_ptx_sreg_nctaid_x() * warps_per_block;
  const GlobalMemory memory;
  CopyItems(memory, at, items, count, longest);
}

}  // namespace gantry::gpu::copy_kernel
