// The only place that creates threads. Thread creation can fail at any time: all containers of a
// pod share its process limit, and the engine may have exhausted it.
#pragma once

#include <pthread.h>

#include <exception>
#include <string_view>
#include <thread>
#include <utility>

#include "lib/base/result.h"

namespace gantry {

// Returns kResourceExhausted with a hint that names the limit to raise.
Error NoThread(const char* name, std::string_view why);

// Runs `work` on a thread of its own; the returned std::jthread stops and joins it. `work` takes a
// std::stop_token or nothing. `name` is the thread's name, at most 15 characters.
template <typename Work>
Result<std::jthread> StartThread(const char* name, Work work) try {
  std::jthread thread(std::move(work));
  ::pthread_setname_np(thread.native_handle(), name);
  return thread;
} catch (const std::exception& why) {
  return Fail(NoThread(name, why.what()));
}

}  // namespace gantry
