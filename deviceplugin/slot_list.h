// The slots that the kubelet is told of, and whether they can be used. Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/clock.h"
#include "lib/base/mutex.h"

namespace gantry::deviceplugin {

class SlotList {
 public:
  static constexpr std::string_view kPrefix = "slot-";
  static constexpr int kSlotsMax = 1024;

  explicit SlotList(int count);  // "slot-000" and so on

  // Of a slot of this or a longer list.
  static bool IsName(std::string_view slot);
  const std::vector<std::string>& names() const { return names_; }
  bool Knows(std::string_view slot) const;

  void SetHealthy(bool healthy) EXCLUDES(mutex_);
  bool healthy() const EXCLUDES(mutex_);

  // Ends waits for a change, so that who waits looks whether it is to stop.
  void Wake() EXCLUDES(mutex_);
  // Which state this is; another number after SetHealthy changed something, and after Wake.
  uint64_t version() const EXCLUDES(mutex_);
  // Until the version is another one, or the deadline.
  void AwaitChange(uint64_t version, TimePoint deadline) EXCLUDES(mutex_);

 private:
  const std::vector<std::string> names_;  // sorted
  mutable Mutex mutex_;
  Condition changed_;
  uint64_t version_ GUARDED_BY(mutex_) = 0;
  bool healthy_ GUARDED_BY(mutex_) = false;
};

}  // namespace gantry::deviceplugin
