#include "deviceplugin/slot_binder.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "lib/base/log.h"

namespace gantry::deviceplugin {
namespace {

BindFailure ReasonOfPlan(const Error& error) {
  switch (error.code) {
    case ErrorCode::kPathUnavailable:
      return BindFailure::kMissingGpu;
    case ErrorCode::kNotExportable:
      return BindFailure::kUnsupportedGpu;
    case ErrorCode::kNotFound:
      return BindFailure::kGpuNotFound;
    default:
      return BindFailure::kInternal;
  }
}

}  // namespace

SlotBinder::SlotBinder(SlotBinderOptions options, PodDevicesSource& pods, SlotFiles& files,
                       const PeerFolders& folders, PluginMetrics& metrics)
    : options_(std::move(options)),
      pods_(pods),
      files_(files),
      folders_(folders),
      metrics_(metrics) {}

tl::expected<SlotPlan, SlotBinder::Failure> SlotBinder::PlanFor(std::string_view slot,
                                                                TimePoint deadline) const {
  const TimePoint find_by = std::min(deadline, Clock::now() + options_.find_max);
  while (true) {
    auto pods = pods_.List(std::min(deadline, Clock::now() + options_.ask_max));
    auto failure = Failure{BindFailure::kPodResources, {}};
    if (pods) {
      const auto owner = OwnerOf(*pods, options_.rules.resource, slot);
      if (owner) {
        auto plan = PlanSlot(options_.rules, *pods, slot, *owner);
        if (plan) return *std::move(plan);
        const BindFailure reason = ReasonOfPlan(plan.error());
        return tl::unexpected(Failure{reason, std::move(plan).error()});
      }
      failure = {BindFailure::kPodNotFound, owner.error()};
    } else {
      failure.error = std::move(pods).error();
      if (failure.error.code == ErrorCode::kCancelled) return tl::unexpected(std::move(failure));
    }
    if (Clock::now() + options_.ask_again >= find_by) return tl::unexpected(std::move(failure));
    std::this_thread::sleep_for(options_.ask_again);
  }
}

tl::expected<void, SlotBinder::Failure> SlotBinder::TryBind(std::string_view slot,
                                                            TimePoint deadline) {
  const uint64_t epoch = files_.EpochOf(slot);
  auto plan = PlanFor(slot, deadline);
  if (!plan) return tl::unexpected(std::move(plan).error());
  if (auto made = folders_.Make(plan->peer_folder); !made) {
    return tl::unexpected(Failure{BindFailure::kPeerDir, std::move(made).error()});
  }
  folders_.RemoveAbandoned(plan->peer_folder);
  auto written = files_.Write(slot, *plan, epoch);
  if (!written) return tl::unexpected(Failure{BindFailure::kCdiWrite, std::move(written).error()});
  log::Info("a slot is bound", {{"slot", slot},
                                {"namespace", plan->pod_namespace},
                                {"pod", plan->pod},
                                {"container", plan->container},
                                {"gpus", plan->gpus.size()},
                                {"peer_gpus", plan->peer_gpus.size()},
                                {"rdma", plan->rdma_reason},
                                {"written", *written}});
  return {};
}

Status SlotBinder::Bind(std::string_view slot, TimePoint deadline) {
  while (true) {
    auto bound = TryBind(slot, deadline);
    if (bound) {
      // Whoever wrote it: the reconciler may have done so a moment ago.
      std::this_thread::sleep_until(files_.WrittenAt(slot) + options_.settle);
      return {};
    }
    Failure& failure = bound.error();
    // Somebody changed the file after the kubelet was asked: what it says now may be another thing.
    if (failure.error.code == ErrorCode::kConflict && Clock::now() < deadline &&
        failure.reason == BindFailure::kCdiWrite) {
      continue;
    }
    metrics_.BindFailed(failure.reason);
    log::Warning("a slot cannot be bound", {{"slot", slot}, {"error", failure.error}});
    return Fail(std::move(failure.error));
  }
}

Result<std::vector<SlotBinder::Preview>> SlotBinder::PreviewAll(TimePoint deadline) const {
  ASSIGN_OR_RETURN(const std::vector<PodDevices> pods, pods_.List(deadline));
  std::vector<Preview> previews;
  for (const PodDevices& pod : pods) {
    for (const ContainerDevices& container : pod.containers) {
      for (const PluginDevices& devices : container.plugin_devices) {
        if (devices.resource != options_.rules.resource) continue;
        for (const std::string& slot : devices.ids) {
          previews.push_back({slot, PlanSlot(options_.rules, pods, slot, {&pod, &container})});
        }
      }
    }
  }
  return previews;
}

}  // namespace gantry::deviceplugin
