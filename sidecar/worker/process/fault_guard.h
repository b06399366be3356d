// Accesses to memory whose file can shrink: a SIGBUS there is an answer, and not the worker's end.
// Any other SIGBUS ends the process. Thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <type_traits>

namespace gantry::worker {

// Handles SIGBUS from here on. Call it once, before other threads run.
void InstallFaultGuard();

// The memory whose file can shrink, of both sides of a copy; empty: none.
using GuardedBytes = std::array<std::span<const std::byte>, 2>;

// Calls `access(context)`; returns false when it met a SIGBUS as a page of `memory` is missing,
// which ends it where it is. REQUIRES that it is plain code: no destructor, no lock, and no call
// that must not end half-way.
bool RunGuarded(const GuardedBytes& memory, void (*access)(void* context), void* context);

// The same for a callable.
template <typename Access>
bool RunGuarded(const GuardedBytes& memory, Access&& access) {
  return RunGuarded(
      memory, [](void* context) { (*static_cast<std::remove_reference_t<Access>*>(context))(); },
      const_cast<void*>(static_cast<const void*>(std::addressof(access))));
}

}  // namespace gantry::worker
