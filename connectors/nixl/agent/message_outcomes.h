// The outcomes of messages, for those who wait for them. Thread-safe.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "lib/base/clock.h"
#include "lib/base/mutex.h"
#include "lib/base/result.h"

namespace gantry::nixl {

class MessageOutcomes {
 public:
  // Outcomes are kept while a watch lives, so it begins before the messages are sent.
  class Watch {
   public:
    explicit Watch(MessageOutcomes& outcomes);
    ~Watch();
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;

    // An error where one of the messages was not delivered, or nothing was heard of it in time.
    Status Await(const std::vector<std::string>& ids, TimePoint deadline);

   private:
    MessageOutcomes& outcomes_;
  };

  void Note(const std::string& id, Status outcome);

 private:
  Mutex mutex_;
  Condition changed_;  // NOLINT: a condition guards nothing
  int watches_ GUARDED_BY(mutex_) = 0;
  std::map<std::string, Status> known_ GUARDED_BY(mutex_);
};

}  // namespace gantry::nixl
