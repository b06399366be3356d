// Brings what is on the node in line with its pods, all the time: specs and folders without pods
// are removed, specs that are no longer true are written anew (the kubelet starts containers
// without asking while it knows no plugin). Also looks at the health of slots. Start and the
// destructor: one thread.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <thread>

#include "deviceplugin/peer_folders.h"
#include "deviceplugin/plugin_metrics.h"
#include "deviceplugin/slot_binder.h"
#include "deviceplugin/slot_files.h"
#include "deviceplugin/slot_health.h"
#include "deviceplugin/slot_list.h"
#include "lib/base/mutex.h"
#include "lib/base/result.h"
#include "lib/process/heartbeat.h"

namespace gantry::deviceplugin {

struct SlotReconcilerOptions {
  std::string resource;
  bool binds = true;  // false: there are no specs, as everything is said in Allocate
  milliseconds interval{60'000};
  milliseconds look_at_health{5'000};
  milliseconds ask_max{5'000};
  std::string root = "/";  // but for tests
};

class SlotReconciler {
 public:
  // Of rounds in a row without its pod, before something is removed.
  static constexpr int kRoundsToBelieve = 2;

  struct Parts {
    PodDevicesSource& pods;
    SlotList& slots;
    SlotFiles& files;
    SlotBinder& binder;
    const PeerFolders& folders;
    SlotHealth& health;
    PluginMetrics& metrics;
  };

  // The parts outlive it. The first round has begun when this returns.
  SlotReconciler(SlotReconcilerOptions options, const Parts& parts);
  ~SlotReconciler();

  // kResourceExhausted: it has no thread and does nothing.
  const Status& started() const { return started_; }
  // Since it looked last, which it does all the time.
  nanoseconds Age() const { return beat_.Age(); }

 private:
  void Run() EXCLUDES(mutex_);
  bool Stopping() EXCLUDES(mutex_);
  void Round();
  void Count(const std::vector<PodDevices>& pods);
  size_t SidecarsIn(const std::vector<PodDevices>& pods) const;
  void ReconcileFiles(const std::vector<SlotFiles::Entry>& entries,
                      const std::vector<PodDevices>& pods);
  // `made`: PeerFolders::TimesMade before the pods were asked for.
  void ReconcileFolders(const std::vector<PodDevices>& pods, uint64_t made);
  void LookAtPorts();

  const SlotReconcilerOptions options_;
  const Parts parts_;
  Heartbeat beat_;
  std::map<std::string, int> rounds_without_pod_;        // by slot and pod
  std::map<std::string, int> rounds_without_namespace_;  // by namespace
  Mutex mutex_;
  Condition stopped_;
  bool stopping_ GUARDED_BY(mutex_) = false;
  Status started_;
  std::jthread thread_;  // last: it uses all of them
};

}  // namespace gantry::deviceplugin
