// Every metric of the device plugin, declared once, present from the start, with closed label sets.
// Names, units and labels: docs/metrics.md. Thread-safe.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lib/base/clock.h"
#include "lib/base/result.h"

namespace gantry::deviceplugin {

// Why a container was not started.
enum class BindFailure {
  kUnknownSlot,
  kPodNotFound,
  kPodResources,
  kMissingGpu,
  kUnsupportedGpu,
  kGpuNotFound,
  kCdiWrite,
  kPeerDir,
  kInternal,
};

// What keeps the slots from being offered.
enum class Unhealthy { kCdiDir, kPodResources, kPeerDir, kNoRdmaPort };

struct RdmaPortSample {
  std::string device;
  bool active = false;
};

// As of the last comparison with the node's pods.
struct SlotSample {
  size_t free = 0;
  size_t bound = 0;
  size_t unhealthy = 0;
  size_t files = 0;
  size_t sidecars = 0;  // that live in containers with slots
};

class PluginMetrics {
 public:
  static std::unique_ptr<PluginMetrics> Make();
  virtual ~PluginMetrics() = default;

  virtual void Registered(bool succeeded) = 0;
  virtual void SetKubeletConnected(bool connected) = 0;
  virtual void Allocated(double seconds) = 0;
  virtual void PreStarted(bool succeeded, double seconds) = 0;
  virtual void BindFailed(BindFailure reason) = 0;
  virtual void SetUnhealthy(Unhealthy reason, bool holds) = 0;
  virtual void FileRemoved() = 0;
  virtual void SetSlots(const SlotSample& sample) = 0;
  virtual void SetRdmaPorts(const std::vector<RdmaPortSample>& ports) = 0;

  // /metrics on "address:port"; the port that was taken.
  virtual Result<int> Listen(const std::string& address) = 0;
  virtual std::string Text() const = 0;
};

}  // namespace gantry::deviceplugin
