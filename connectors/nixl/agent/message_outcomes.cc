#include "connectors/nixl/agent/message_outcomes.h"

#include <utility>

namespace gantry::nixl {

MessageOutcomes::Watch::Watch(MessageOutcomes& outcomes) : outcomes_(outcomes) {
  const MutexLock lock(outcomes_.mutex_);
  ++outcomes_.watches_;
}

MessageOutcomes::Watch::~Watch() {
  const MutexLock lock(outcomes_.mutex_);
  if (--outcomes_.watches_ == 0) outcomes_.known_.clear();
}

Status MessageOutcomes::Watch::Await(const std::vector<std::string>& ids, TimePoint deadline) {
  MutexLock lock(outcomes_.mutex_);
  for (const std::string& id : ids) {
    auto found = outcomes_.known_.find(id);
    while (found == outcomes_.known_.end()) {
      if (Clock::now() >= deadline) {
        return Fail(ErrorCode::kDeadlineExceeded,
                    "it is not known in time whether a part of the notification arrived");
      }
      outcomes_.changed_.WaitUntil(lock, deadline);
      found = outcomes_.known_.find(id);
    }
    RETURN_IF_ERROR(found->second);
  }
  return {};
}

void MessageOutcomes::Note(const std::string& id, Status outcome) {
  const MutexLock lock(mutex_);
  if (watches_ == 0) return;
  known_.insert_or_assign(id, std::move(outcome));
  changed_.NotifyAll();
}

}  // namespace gantry::nixl
