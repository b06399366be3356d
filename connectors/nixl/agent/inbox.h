// Notifications that arrived and were not taken yet. Thread-safe; looking into an empty one takes
// no lock and makes no request.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "connectors/nixl/abi/nixl_interface.h"
#include "connectors/nixl/agent/layout_request.h"
#include "connectors/nixl/agent/message_outcomes.h"
#include "connectors/nixl/agent/message_parts.h"
#include "lib/base/mutex.h"
#include "lib/codec/body_fields.h"

namespace gantry::nixl {

class Inbox {
 public:
  using Asked = std::function<void(const LayoutRequest&)>;

  // The events of a page of POST /v1/completions:poll. `asked` is called with each request for
  // blocks. Called by one thread.
  void Hear(const std::string& page, const Asked& asked);
  // Appends what has arrived.
  void TakeAll(Notifications& taken);
  // The outcomes of messages that this agent sent.
  MessageOutcomes& outcomes() { return *outcomes_; }
  // Nothing more is to be heard until what is here was taken.
  bool is_full() const { return bytes_ >= kBytesMax; }

  static constexpr size_t kBytesMax = size_t{64} << 20;

 private:
  void HearOutcome(const wire::BodyFields& fields, const std::string& event);
  Status HearMessage(const wire::BodyFields& fields, const std::string& at, const Asked& asked)
      REQUIRES(hearing_);

  std::atomic<bool> has_some_{false};
  const std::unique_ptr<MessageOutcomes> outcomes_ = std::make_unique<MessageOutcomes>();
  Mutex hearing_;
  MessageJoiner joiner_ GUARDED_BY(hearing_);
  Mutex mutex_;
  Notifications arrived_ GUARDED_BY(mutex_);
  std::atomic<size_t> bytes_{0};  // of `arrived_`; changes under `mutex_`
};

}  // namespace gantry::nixl
