// RDMA devices and accelerators, as far as sysfs tells.
#include <unistd.h>

#include <string>

#include "gantryctl/doctor.h"
#include "lib/topology/sysfs_devices.h"

namespace gantry::gantryctl {
namespace {

Finding ExamineRdmaDevice(const topology::RdmaDevice& device, const std::string& root) {
  const std::string subject = "RDMA " + device.name;
  const topology::RdmaPort* port = device.ActivePort();
  if (port == nullptr) {
    return {Level::kWarn, subject, "no port is active", "check cable and switch"};
  }
  if (device.device_file.empty() || access((root + device.device_file).c_str(), R_OK | W_OK) != 0) {
    return {Level::kWarn, subject,
            "active, but " + (device.device_file.empty() ? "no device file" : device.device_file) +
                " is not to be had here",
            "give the container the device, through the device plugin"};
  }
  return {Level::kOk, subject, port->link_layer + ", " + port->rate, ""};
}

}  // namespace

Findings ExamineDevices(const std::string& root) {
  Findings findings;
  const auto rdma = topology::ListRdmaDevices(root);
  for (const auto& device : rdma) findings.push_back(ExamineRdmaDevice(device, root));
  if (rdma.empty()) findings.push_back({Level::kOk, "RDMA", "no device on this machine", ""});

  const auto accelerators = topology::ListPciAccelerators(root);
  if (accelerators.empty()) {
    findings.push_back({Level::kOk, "accelerators", "none on the PCI bus", ""});
    return findings;
  }
  findings.push_back({Level::kOk, "accelerators",
                      std::to_string(accelerators.size()) + " on the PCI bus, the first at " +
                          accelerators.front().address +
                          "; the ipc path of GET /v1/info says whether the sidecar can use them",
                      ""});
  return findings;
}

}  // namespace gantry::gantryctl
