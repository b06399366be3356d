// Notifications that arrived and were not taken yet. Thread-safe; looking into an empty one takes
// no lock and makes no request.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <utility>

#include "connectors/nixl/abi/nixl_interface.h"
#include "connectors/nixl/agent/layout_request.h"
#include "connectors/nixl/agent/message_parts.h"
#include "lib/base/mutex.h"
#include "lib/codec/body_fields.h"

namespace gantry::nixl {

class Inbox {
 public:
  // `asked`: is called with each request for blocks, by the thread that hears.
  explicit Inbox(std::function<void(const LayoutRequest&)> asked) : asked_(std::move(asked)) {}

  // The events of a page of POST /v1/completions:poll. Called by one thread.
  void Hear(const std::string& page);
  // Appends what has arrived.
  void TakeAll(Notifications& taken);

 private:
  Status HearMessage(const wire::BodyFields& fields, const std::string& at) REQUIRES(hearing_);

  const std::function<void(const LayoutRequest&)> asked_;
  std::atomic<bool> has_some_{false};
  Mutex hearing_;
  MessageJoiner joiner_ GUARDED_BY(hearing_);
  Mutex mutex_;
  Notifications arrived_ GUARDED_BY(mutex_);
};

}  // namespace gantry::nixl
