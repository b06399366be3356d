#include "deviceplugin/pod_devices.h"

#include <algorithm>

namespace gantry::deviceplugin {

bool ContainerDevices::Has(std::string_view resource, std::string_view id) const {
  return std::any_of(
      plugin_devices.begin(), plugin_devices.end(), [&](const PluginDevices& devices) {
        return devices.resource == resource &&
               std::find(devices.ids.begin(), devices.ids.end(), id) != devices.ids.end();
      });
}

bool ContainerDevices::HasAnyOf(std::string_view resource) const {
  return std::any_of(plugin_devices.begin(), plugin_devices.end(),
                     [&](const PluginDevices& devices) {
                       return devices.resource == resource && !devices.ids.empty();
                     });
}

Result<SlotOwner> OwnerOf(const std::vector<PodDevices>& pods, std::string_view resource,
                          std::string_view slot) {
  SlotOwner owner;
  for (const PodDevices& pod : pods) {
    for (const ContainerDevices& container : pod.containers) {
      if (!container.Has(resource, slot)) continue;
      if (owner.pod != nullptr) {
        return Fail(ErrorCode::kConflict, "the slot " + std::string(slot) + " is in pods " +
                                              owner.pod->pod_namespace + "/" + owner.pod->name +
                                              " and " + pod.pod_namespace + "/" + pod.name);
      }
      owner = {&pod, &container};
    }
  }
  if (owner.pod == nullptr) {
    return Fail(ErrorCode::kNotFound, "no pod of this node has the slot " + std::string(slot),
                "the kubelet answers so until it has recorded the pod, and tries again by itself; "
                "it never tells of init containers without restartPolicy: Always");
  }
  return owner;
}

}  // namespace gantry::deviceplugin
