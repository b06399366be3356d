#include "sidecar/worker/process/fault_guard.h"

#include <setjmp.h>
#include <signal.h>
#include <ucontext.h>

#include <algorithm>
#include <atomic>

namespace gantry::worker {
namespace {

struct Guard {
  const GuardedBytes& memory;
  sigjmp_buf resume_at;
};

// The access that this thread guards; null: none. Atomic, as a signal handler reads it.
thread_local std::atomic<const Guard*> active_guard = nullptr;
static_assert(std::atomic<const Guard*>::is_always_lock_free);

// Called by the signal handler: no page is there, in memory that may shrink. Other faults, such as
// those of broken memory, are no truncation.
bool IsOf(const GuardedBytes& memory, const siginfo_t& fault) {
  if (fault.si_code != BUS_ADRERR) return false;
  const auto* const at = static_cast<const std::byte*>(fault.si_addr);
  return std::any_of(memory.begin(), memory.end(), [at](std::span<const std::byte> each) {
    return at >= each.data() && at < each.data() + each.size();
  });
}

void OnFault(int signal_number, siginfo_t* fault, void* context) {
  std::atomic_signal_fence(std::memory_order_seq_cst);
  const Guard* const guarded = active_guard.load(std::memory_order_relaxed);
  if (guarded != nullptr && IsOf(guarded->memory, *fault)) {
    // The jump restores no mask, and a sanitizer's runtime blocks all signals in a handler.
    ::pthread_sigmask(SIG_SETMASK, &static_cast<const ucontext_t*>(context)->uc_sigmask, nullptr);
    ::siglongjmp(const_cast<Guard*>(guarded)->resume_at, 1);
  }
  ::signal(signal_number, SIG_DFL);
  ::raise(signal_number);  // also where another process sent it, and no access meets it again
}

void SetGuard(const Guard* to) {
  std::atomic_signal_fence(std::memory_order_seq_cst);
  active_guard.store(to, std::memory_order_relaxed);
  std::atomic_signal_fence(std::memory_order_seq_cst);
}

}  // namespace

void InstallFaultGuard() {
  struct sigaction action = {};
  action.sa_sigaction = OnFault;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGBUS, &action, nullptr);
}

bool RunGuarded(const GuardedBytes& memory, void (*access)(void* context), void* context) {
  Guard here = {memory, {}};
  if (sigsetjmp(here.resume_at, /*savemask=*/0) != 0) {
    SetGuard(nullptr);
    return false;
  }
  SetGuard(&here);
  access(context);
  SetGuard(nullptr);
  return true;
}

}  // namespace gantry::worker
