// The copy kernel for GPUs of any vendor, compiled by clang behind the vendor's file that says
// where a thread is (cuda_kernel_thread.h, hip_kernel_thread.h).
#pragma clang force_cuda_host_device begin
#include "lib/gpu/shared/copy_kernel.h"
#pragma clang force_cuda_host_device end

namespace gantry::gpu::copy_kernel {
namespace {

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

// The vendor's stream launches it.
extern "C" __attribute__((global, launch_bounds(kBlockThreads))) void gantry_copy_items(
    Uint64 items, Uint32 count, Uint64 longest) {
  const Uint32 thread = ThreadInBlock();
  const Uint32 lanes = Lanes();
  const Uint64 warps_per_block = ThreadsOfBlock() / lanes;
  Position at;
  at.lane = thread % lanes;
  at.lanes = lanes;
  at.warp = Block() * warps_per_block + thread / lanes;
  at.warps = Blocks() * warps_per_block;
  const GlobalMemory memory;
  CopyItems(memory, at, items, count, longest);
}

}  // namespace gantry::gpu::copy_kernel
