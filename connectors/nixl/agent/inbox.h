// Notifications that arrived and were not taken yet. Thread-safe; looking into an empty one takes
// no lock and makes no request.
#pragma once

#include <atomic>
#include <string>

#include "connectors/nixl/abi/nixl_interface.h"
#include "connectors/nixl/agent/message_parts.h"
#include "lib/base/mutex.h"

namespace gantry::nixl {

class Inbox {
 public:
  // The events of a page of POST /v1/completions:poll. Called by one thread.
  void Hear(const std::string& page);
  // Appends what has arrived.
  void TakeAll(Notifications& taken);

 private:
  std::atomic<bool> has_some_{false};
  Mutex hearing_;
  MessageJoiner joiner_ GUARDED_BY(hearing_);
  Mutex mutex_;
  Notifications arrived_ GUARDED_BY(mutex_);
};

}  // namespace gantry::nixl
