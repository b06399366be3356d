// Which GPUs pods have, and what a container needs to use the same ones: what the node's CDI specs
// say of them, else their device files and the runtime's variables. Immutable; thread-safe.
#pragma once

#include <string>
#include <vector>

#include "deviceplugin/cdi/cdi_specs.h"
#include "deviceplugin/pod_devices.h"
#include "lib/gpu/shared/cluster_gpus.h"

namespace gantry::deviceplugin {

// A GPU as a container has it: of a device plugin by its id, of a claim by CDI names.
struct GpuName {
  const gpu::ClusterGpus* vendor = nullptr;
  std::string id;                      // empty: of a claim
  std::vector<std::string> cdi_names;  // of a claim

  bool operator==(const GpuName&) const = default;
};

// Of these containers, each once. kNotExportable: one has a part of a GPU that cannot be shared.
Result<std::vector<GpuName>> GpusOf(const ContainerDevices& container);

// GPUs for one container.
struct GpuGrant {
  std::vector<std::string> ids;            // as their vendor names them
  std::vector<std::string> pci_addresses;  // of those, where they are known
  std::vector<std::string> other_ids;      // of those that are granted for the sake of peers
  std::string cdi_version = std::string(ContainerEdits::kCdiVersion);
  ContainerEdits edits;
};

class NodeGpus {
 public:
  // What the node has now. `root` is "/" but for tests.
  static NodeGpus Detect(const std::vector<std::string>& cdi_folders, const std::string& root);

  // kNotFound: neither a spec nor the file system knows one of `own`. kNotExportable: one is a
  // part of a GPU, or its id does not say which GPU it is. Of `others`, what is not known is left
  // out, and said in the log.
  Result<GpuGrant> Grant(const std::vector<GpuName>& own, const std::vector<GpuName>& others) const;
  // Every GPU of the node.
  std::vector<GpuName> All() const;
  std::vector<std::string> PciAddresses() const;

 private:
  struct Vendor {
    const gpu::ClusterGpus* names = nullptr;
    std::vector<gpu::NodeGpu> gpus;
  };

  struct Access;  // to one GPU or the GPUs of one claim

  const Vendor& VendorOf(const gpu::ClusterGpus* names) const;
  const CdiDevice* SpecOf(const Vendor& vendor, const std::string& id) const;
  Result<Access> AccessTo(const GpuName& name) const;
  Result<Access> AccessToClaimed(const Vendor& vendor, const GpuName& name) const;

  CdiSpecs specs_;
  std::vector<Vendor> vendors_;
};

}  // namespace gantry::deviceplugin
