// The one place that makes threads. A thread can be refused at any time: a pod's limit of processes
// is shared by all of its containers, and its engine may have used it up.
#pragma once

#include <pthread.h>

#include <exception>
#include <string_view>
#include <thread>
#include <utility>

#include "lib/base/result.h"

namespace gantry {

// kResourceExhausted, with what to raise.
Error NoThread(const char* name, std::string_view why);

// Runs `work` on a thread of its own, which ends with its std::jthread. `work` takes a
// std::stop_token or nothing. `name`: of the thread, 15 characters at most.
template <typename Work>
Result<std::jthread> StartThread(const char* name, Work work) try {
  std::jthread thread(std::move(work));
  ::pthread_setname_np(thread.native_handle(), name);
  return thread;
} catch (const std::exception& why) {
  return Fail(NoThread(name, why.what()));
}

}  // namespace gantry
