// How the GPUs of a vendor appear to Kubernetes and to the file system of a node: the names of
// their resources and what a container needs in order to open one. No driver is loaded. Immutable;
// thread-safe.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/result.h"

namespace gantry::gpu {

// One GPU of this machine.
struct NodeGpu {
  std::string id;           // as the vendor's device plugin names it
  std::string pci_address;  // "0000:1b:00.0"
  std::string device_file;  // "/dev/..."; its own, that no other GPU has
};

// A vendor must provide this. A new one is a class in a file of its own, which the vendor's row in
// gpu_vendors.cc names.
class ClusterGpus {
 public:
  virtual ~ClusterGpus() = default;

  // Of device plugins, "example.com/gpu" and its variants.
  virtual bool OwnsResource(std::string_view resource) const = 0;
  // Of drivers for resource claims (DRA), "gpu.example.com".
  virtual bool OwnsDriver(std::string_view driver) const = 0;
  // "vendor/class" of the CDI specs that this vendor's tools write on a node, best first.
  virtual std::span<const std::string_view> CdiKinds() const = 0;

  // The id of the GPU that a device id of such a resource stands for. Fails with kNotExportable for
  // a part of a GPU that cannot be shared between containers.
  virtual Result<std::string> GpuIdOf(std::string_view device_id) const = 0;

  // Whether an id of this form stands for one whole GPU. Other forms are those of plugins that
  // count shares: the plugin alone knows on which GPU one of them is.
  virtual bool NamesGpu(std::string_view id) const = 0;
  // Whether this is the device file of one GPU, by its name.
  virtual bool IsGpuFile(std::string_view path) const = 0;

  // How the paths of device files begin that only parts of GPUs have, which cannot be shared
  // either; empty: there are none.
  virtual std::string_view FilesOfParts() const { return {}; }

  // Sorted by PCI address. `root` is "/" but for tests.
  virtual std::vector<NodeGpu> List(const std::string& root) const = 0;

  // Beside the GPUs' own device files, where no CDI spec says what a container needs: the files
  // that all share, and variables ("NAME=value") for a runtime that adds the rest.
  virtual std::span<const std::string_view> SharedDeviceFiles() const = 0;
  virtual std::vector<std::string> RuntimeVariables(
      const std::vector<std::string>& gpu_ids) const = 0;
};

}  // namespace gantry::gpu
