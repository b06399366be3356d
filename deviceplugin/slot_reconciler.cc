#include "deviceplugin/slot_reconciler.h"

#include <algorithm>
#include <set>
#include <utility>

#include "lib/base/log.h"
#include "lib/base/thread.h"
#include "lib/topology/sysfs_devices.h"

namespace gantry::deviceplugin {
namespace {

constexpr milliseconds kBindMax{10'000};
// For all that are to be bound in one round: health is looked at between rounds.
constexpr milliseconds kBindAllMax{10'000};

// Every slot that a container has, with whose it is.
std::map<std::string, SlotOwner> OwnersIn(const std::vector<PodDevices>& pods,
                                          const std::string& resource) {
  std::map<std::string, SlotOwner> owners;
  for (const PodDevices& pod : pods) {
    for (const ContainerDevices& container : pod.containers) {
      for (const PluginDevices& devices : container.plugin_devices) {
        if (devices.resource != resource) continue;
        for (const std::string& id : devices.ids) owners[id] = {&pod, &container};
      }
    }
  }
  return owners;
}

bool SaysSo(const SlotFiles::Entry& entry, const SlotOwner& owner) {
  return entry.pod_namespace == owner.pod->pod_namespace && entry.pod == owner.pod->name &&
         entry.container == owner.container->name;
}

}  // namespace

SlotReconciler::SlotReconciler(SlotReconcilerOptions options, const Parts& parts)
    : options_(std::move(options)), parts_(parts) {
  auto thread = StartThread("gantry-rounds", [this] { Run(); });
  if (thread) {
    thread_ = *std::move(thread);
  } else {
    started_ = Fail(std::move(thread).error());
  }
}

SlotReconciler::~SlotReconciler() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    stopped_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

void SlotReconciler::Run() {
  TimePoint next_round = Clock::now();
  while (true) {
    beat_.Beat();
    parts_.health.RunChecks();
    LookAtPorts();
    if (Clock::now() >= next_round) {
      Round();
      next_round = Clock::now() + options_.interval;
    }
    const TimePoint next = std::min<TimePoint>(next_round, Clock::now() + options_.look_at_health);
    MutexLock lock(mutex_);
    while (!stopping_ && stopped_.WaitUntil(lock, next)) {
    }
    if (stopping_) return;
  }
}

bool SlotReconciler::Stopping() {
  const MutexLock lock(mutex_);
  return stopping_;
}

void SlotReconciler::Round() {
  // First what there is, then the pods: what changes afterwards is known by its epoch.
  const uint64_t folders_made = parts_.folders.TimesMade();
  const auto entries = parts_.files.List();
  const auto pods = parts_.pods.List(Clock::now() + options_.ask_max);
  if (!pods) {  // nothing is known, so nothing is touched
    if (pods.error().code == ErrorCode::kCancelled) return;
    log::Warning("slots are not compared with the node's pods", {{"error", pods.error()}});
    return;
  }
  if (options_.binds) {
    ReconcileFiles(entries, *pods);
    ReconcileFolders(*pods, folders_made);
    parts_.files.RemoveUnfinished();
  }
  Count(*pods);
}

void SlotReconciler::Count(const std::vector<PodDevices>& pods) {
  const size_t bound = OwnersIn(pods, options_.resource).size();
  const size_t all = parts_.slots.names().size();
  SlotSample sample;
  sample.bound = bound;
  const size_t rest = all - std::min(all, bound);
  (parts_.slots.healthy() ? sample.free : sample.unhealthy) = rest;
  sample.files = parts_.files.List().size();
  sample.sidecars = SidecarsIn(pods);
  parts_.metrics.SetSlots(sample);
}

// By the locks that they hold in their folders; where those of others are, too, no more than slots.
size_t SlotReconciler::SidecarsIn(const std::vector<PodDevices>& pods) const {
  std::map<std::string, size_t> slots;  // by folder
  for (const auto& [slot, owner] : OwnersIn(pods, options_.resource)) {
    const std::string below = options_.binds ? "/" + owner.pod->pod_namespace : "";
    ++slots[parts_.folders.parent() + below];
  }
  size_t sidecars = 0;
  for (const auto& [folder, count] : slots) {
    sidecars += std::min(count, parts_.folders.Living(folder));
  }
  return sidecars;
}

void SlotReconciler::ReconcileFiles(const std::vector<SlotFiles::Entry>& entries,
                                    const std::vector<PodDevices>& pods) {
  auto owners = OwnersIn(pods, options_.resource);
  std::map<std::string, int> without_pod;
  for (const SlotFiles::Entry& entry : entries) {
    const auto owner = owners.find(entry.slot);
    if (owner != owners.end()) {
      if (SaysSo(entry, owner->second)) owners.erase(owner);  // nothing is to be done for it
      continue;
    }
    const std::string key = entry.slot + "/" + entry.pod_namespace + "/" + entry.pod;
    const int rounds = rounds_without_pod_[key] + 1;
    if (rounds < kRoundsToBelieve) {
      without_pod[key] = rounds;
      continue;
    }
    const Status removed = parts_.files.Remove(entry.slot, entry.epoch);
    if (!removed && removed.error().code != ErrorCode::kConflict) {
      log::Warning("the spec of a slot without a pod stays", {{"error", removed.error()}});
    } else if (removed) {  // no other pod has come meanwhile
      parts_.metrics.FileRemoved();
      log::Info("the spec of a slot without a pod is removed",
                {{"slot", entry.slot}, {"pod", entry.pod}, {"namespace", entry.pod_namespace}});
    }
  }
  rounds_without_pod_ = std::move(without_pod);
  const TimePoint end = Clock::now() + kBindAllMax;
  for (const auto& [slot, owner] : owners) {
    if (!SlotList::IsName(slot)) continue;
    if (Stopping() || Clock::now() >= end) return;  // the rest in the next round
    log::Warning("a slot's spec is not its pod's and is written anew",
                 {{"slot", slot}, {"pod", owner.pod->name}});
    [[maybe_unused]] const Status bound = parts_.binder.Bind(slot, Clock::now() + kBindMax);
  }
}

void SlotReconciler::ReconcileFolders(const std::vector<PodDevices>& pods, uint64_t made) {
  std::set<std::string> with_pods;
  for (const PodDevices& pod : pods) {
    for (const ContainerDevices& container : pod.containers) {
      if (container.HasAnyOf(options_.resource)) with_pods.insert(pod.pod_namespace);
    }
  }
  std::map<std::string, int> without_namespace;
  for (const std::string& name : parts_.folders.Namespaces()) {
    if (with_pods.contains(name)) continue;
    const int rounds = rounds_without_namespace_[name] + 1;
    if (rounds < kRoundsToBelieve || !parts_.folders.Remove(name, made)) {
      without_namespace[name] = rounds;
    }
  }
  rounds_without_namespace_ = std::move(without_namespace);
}

void SlotReconciler::LookAtPorts() {
  std::vector<RdmaPortSample> ports;
  for (const topology::RdmaDevice& device : topology::ListRdmaDevices(options_.root)) {
    ports.push_back({device.name, device.ActivePort() != nullptr});
  }
  parts_.metrics.SetRdmaPorts(ports);
}

}  // namespace gantry::deviceplugin
