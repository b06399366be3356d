#include "sidecar/worker/process/fault_guard.h"

#include <setjmp.h>
#include <signal.h>

namespace gantry::worker {
namespace {

// Where this thread goes on after a SIGBUS; null: no access is guarded.
thread_local sigjmp_buf* resume_at = nullptr;

// The kernel sends the signal again once it returns without a guard, and then it ends the process.
void OnFault(int signal_number) {
  if (resume_at != nullptr) ::siglongjmp(*resume_at, 1);
  ::signal(signal_number, SIG_DFL);
}

}  // namespace

void InstallFaultGuard() {
  struct sigaction action = {};
  action.sa_handler = OnFault;
  action.sa_flags = SA_NODEFER;  // the jump restores no mask
  ::sigaction(SIGBUS, &action, nullptr);
}

bool RunGuarded(void (*access)(void* context), void* context) {
  sigjmp_buf here;
  if (sigsetjmp(here, /*savemask=*/0) != 0) {
    resume_at = nullptr;
    return false;
  }
  resume_at = &here;
  access(context);
  resume_at = nullptr;
  return true;
}

}  // namespace gantry::worker
