// Accelerators, as far as sysfs tells.
#include <string>

#include "gantryctl/doctor.h"
#include "lib/topology/sysfs_devices.h"

namespace gantry::gantryctl {

Findings ExamineDevices(const std::string& root) {
  const auto accelerators = topology::ListPciAccelerators(root);
  if (accelerators.empty()) return {{Level::kOk, "accelerators", "none on the PCI bus", ""}};
  return {{Level::kOk, "accelerators",
           std::to_string(accelerators.size()) + " on the PCI bus, the first at " +
               accelerators.front().address +
               "; the ipc path of GET /v1/info says whether the sidecar can use them",
           ""}};
}

}  // namespace gantry::gantryctl
