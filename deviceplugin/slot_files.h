// The CDI specs of this plugin's slots: one file a slot, in the folder that runtimes watch. They
// outlive the plugin, as containers are started again without it. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "deviceplugin/slot_plan.h"
#include "lib/base/clock.h"
#include "lib/base/mutex.h"
#include "lib/base/result.h"

namespace gantry::deviceplugin {

class SlotFiles {
 public:
  struct Entry {
    std::string slot;
    std::string pod_namespace;  // whose container it was written for
    std::string pod;
    std::string container;
    uint64_t epoch = 0;
  };

  // `resource` is the CDI kind of the slots.
  SlotFiles(std::string folder, std::string resource);

  std::string CdiNameOf(std::string_view slot) const;  // "gantry.dev/transfer=slot-000"

  // Which change of a slot's file was the last one. Who decides by what was true before names it,
  // and fails with kConflict if somebody has changed the file since.
  uint64_t EpochOf(std::string_view slot) const EXCLUDES(mutex_);
  // The file is there as a whole or not at all. False: it said the same already.
  Result<bool> Write(std::string_view slot, const SlotPlan& plan, uint64_t epoch) EXCLUDES(mutex_);
  // When this process last wrote it; long ago: it did not.
  TimePoint WrittenAt(std::string_view slot) const EXCLUDES(mutex_);
  Status Remove(std::string_view slot, uint64_t epoch) EXCLUDES(mutex_);
  // Whatever it was for; it need not be there. Waits for no disk.
  Status Clear(std::string_view slot) EXCLUDES(mutex_);

  // Those of this kind that are there, sorted by slot.
  std::vector<Entry> List() const;
  // Files that a plugin was writing when it was killed.
  void RemoveUnfinished() const;
  // Whether files can be written.
  Status Probe() const;

 private:
  std::string NameOf(std::string_view slot) const;
  std::string PathOf(std::string_view slot) const { return folder_ + "/" + NameOf(slot); }
  uint64_t EpochNow(std::string_view slot) const REQUIRES(mutex_);
  Status CheckEpoch(std::string_view slot, uint64_t epoch) const REQUIRES(mutex_);
  Status RemoveNow(std::string_view slot) REQUIRES(mutex_);

  const std::string folder_;
  const std::string resource_;
  mutable Mutex mutex_;
  std::map<std::string, uint64_t, std::less<>> epochs_ GUARDED_BY(mutex_);
  std::map<std::string, TimePoint, std::less<>> written_at_ GUARDED_BY(mutex_);
};

}  // namespace gantry::deviceplugin
