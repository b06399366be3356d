// The one kernel that the fakes know, the copy kernel: its own source, compiled for the host, at
// every position of the grid. Thread-safe.
#pragma once

#include <cstdint>

#include "tests/fakes/gpu/fake_context.h"

namespace gantry::fake_gpu {

inline constexpr Result kMisalignedAddress = 716;

// A module of a context has one function, for which the same pointer stands.
void* LoadModule(const FakeContext& context, unsigned lanes);
bool IsLoaded(const void* module, const FakeContext& context);
// REQUIRES IsLoaded.
void UnloadModule(const void* module);

struct Launch {
  unsigned grid[3] = {};
  unsigned block[3] = {};
  void** arguments = nullptr;
};
// What becomes of an error in memory: the context's, or worse. REQUIRES IsLoaded.
using OnFault = void (*)(FakeContext& context, Result error);
Result LaunchCopyKernel(const void* module, FakeContext& context, FakeStream& stream,
                        const Launch& launch, OnFault on_fault);

}  // namespace gantry::fake_gpu
