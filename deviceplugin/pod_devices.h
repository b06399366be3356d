// Which devices the containers of this node have, as the kubelet answers, and questions about it.
// Plain values; the functions are stateless and thread-safe.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/clock.h"
#include "lib/base/result.h"

namespace gantry::deviceplugin {

// Of a device plugin.
struct PluginDevices {
  std::string resource;  // "example.com/gpu"
  std::vector<std::string> ids;
};

// Of a resource claim (DRA).
struct ClaimedDevice {
  std::string driver;
  std::string device;
  std::vector<std::string> cdi_names;  // "vendor/class=name"
};

struct ContainerDevices {
  std::string name;
  std::vector<PluginDevices> plugin_devices;
  std::vector<ClaimedDevice> claimed_devices;

  bool Has(std::string_view resource, std::string_view id) const;
  bool HasAnyOf(std::string_view resource) const;
};

struct PodDevices {
  std::string pod_namespace;
  std::string name;
  std::vector<ContainerDevices> containers;  // with the restartable init containers
};

// Where the answer comes from. Thread-safe.
class PodDevicesSource {
 public:
  virtual ~PodDevicesSource() = default;
  // Of all pods that are admitted and have not ended.
  virtual Result<std::vector<PodDevices>> List(TimePoint deadline) = 0;
  // Ends questions that wait, and each later one at once: kCancelled.
  virtual void Stop() {}
};

// A container in an answer; valid as long as that.
struct SlotOwner {
  const PodDevices* pod = nullptr;
  const ContainerDevices* container = nullptr;
};

// kNotFound: no container has the slot; kConflict: several do, one of which is about to leave.
Result<SlotOwner> OwnerOf(const std::vector<PodDevices>& pods, std::string_view resource,
                          std::string_view slot);

}  // namespace gantry::deviceplugin
