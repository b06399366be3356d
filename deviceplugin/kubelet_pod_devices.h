// The kubelet's PodResources API, over its Unix socket. Thread-safe.
#pragma once

#include <memory>
#include <string>

#include "deviceplugin/pod_devices.h"

namespace gantry::deviceplugin {

// `socket`: ".../pod-resources/kubelet.sock". Nothing is connected before the first question, and a
// restarted kubelet is found again by the next. Fails with kPeerUnavailable or kDeadlineExceeded.
std::unique_ptr<PodDevicesSource> KubeletPodDevices(const std::string& socket);

}  // namespace gantry::deviceplugin
