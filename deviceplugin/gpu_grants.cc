#include "deviceplugin/gpu_grants.h"

#include <algorithm>
#include <map>
#include <utility>

#include "lib/base/log.h"
#include "lib/gpu/all_cluster_gpus.h"

namespace gantry::deviceplugin {
namespace {

// By the name that its vendor gives it, or by that of its device file.
const gpu::NodeGpu* GpuWithId(const std::vector<gpu::NodeGpu>& gpus, std::string_view id) {
  const std::string file = "/dev/" + std::string(id);
  const auto gpu = std::find_if(gpus.begin(), gpus.end(), [&](const auto& other) {
    return other.id == id || other.device_file == file;
  });
  return gpu == gpus.end() ? nullptr : &*gpu;
}

// Those of `gpus` whose own files are among these.
std::vector<const gpu::NodeGpu*> GpusWithFiles(const std::vector<gpu::NodeGpu>& gpus,
                                               const std::vector<std::string>& files) {
  std::vector<const gpu::NodeGpu*> found;
  for (const gpu::NodeGpu& gpu : gpus) {
    if (std::find(files.begin(), files.end(), gpu.device_file) != files.end()) {
      found.push_back(&gpu);
    }
  }
  return found;
}

bool HasFilesOfParts(const gpu::ClusterGpus& vendor, const std::vector<std::string>& files) {
  const std::string_view parts = vendor.FilesOfParts();
  return !parts.empty() && std::any_of(files.begin(), files.end(), [&](const std::string& file) {
    return file.starts_with(parts);
  });
}

// Where the driver lists no GPUs: those that CDI specs give a device of their own. Tools may name
// one GPU twice, by its number and by the vendor's id.
std::vector<gpu::NodeGpu> GpusOfSpecs(const gpu::ClusterGpus& vendor, const CdiSpecs& specs) {
  std::map<std::string, gpu::NodeGpu> by_file;
  for (const std::string_view kind : vendor.CdiKinds()) {
    for (const auto& [name, device] : specs.DevicesOf(kind)) {
      std::vector<std::string> files = device.own.DeviceFiles();
      if (HasFilesOfParts(vendor, files)) continue;
      std::erase_if(files, [&](const std::string& file) { return !vendor.IsGpuFile(file); });
      if (files.size() != 1) continue;
      gpu::NodeGpu& gpu = by_file[files.front()];
      if (gpu.id.empty() || (vendor.NamesGpu(name) && !vendor.NamesGpu(gpu.id))) gpu.id = name;
      gpu.device_file = files.front();
    }
  }
  std::vector<gpu::NodeGpu> gpus;
  for (auto& [file, gpu] : by_file) gpus.push_back(std::move(gpu));
  return gpus;
}

void AddOnce(const std::string& text, std::vector<std::string>& list) {
  if (std::find(list.begin(), list.end(), text) == list.end()) list.push_back(text);
}

}  // namespace

struct NodeGpus::Access {
  std::vector<std::string> ids;
  std::vector<std::string> pci_addresses;
  std::string cdi_version = std::string(ContainerEdits::kCdiVersion);
  ContainerEdits edits;
  bool by_spec = false;  // else by the device files that there are

  void Add(const CdiDevice& device) {
    by_spec = true;
    edits.Merge(device.all);
    cdi_version = LaterCdiVersion(cdi_version, device.cdi_version);
  }
  void Add(const gpu::NodeGpu& gpu) {
    AddOnce(gpu.id, ids);
    if (!gpu.pci_address.empty()) AddOnce(gpu.pci_address, pci_addresses);
  }
};

Result<std::vector<GpuName>> GpusOf(const ContainerDevices& container) {
  std::vector<GpuName> names;
  const auto add = [&](GpuName name) {
    if (std::find(names.begin(), names.end(), name) == names.end())
      names.push_back(std::move(name));
  };
  for (const auto& vendor : gpu::AllClusterGpus()) {
    for (const PluginDevices& devices : container.plugin_devices) {
      if (!vendor->OwnsResource(devices.resource)) continue;
      for (const std::string& device : devices.ids) {
        ASSIGN_OR_RETURN(std::string id, vendor->GpuIdOf(device));
        add({vendor.get(), std::move(id), {}});
      }
    }
    for (const ClaimedDevice& device : container.claimed_devices) {
      if (vendor->OwnsDriver(device.driver)) add({vendor.get(), {}, device.cdi_names});
    }
  }
  return names;
}

NodeGpus NodeGpus::Detect(const std::vector<std::string>& cdi_folders, const std::string& root) {
  NodeGpus node;
  node.specs_ = CdiSpecs::Read(cdi_folders);
  for (const auto& vendor : gpu::AllClusterGpus()) {
    std::vector<gpu::NodeGpu> gpus = vendor->List(root);
    if (gpus.empty()) gpus = GpusOfSpecs(*vendor, node.specs_);
    node.vendors_.push_back({vendor.get(), std::move(gpus)});
  }
  return node;
}

const NodeGpus::Vendor& NodeGpus::VendorOf(const gpu::ClusterGpus* names) const {
  return *std::find_if(vendors_.begin(), vendors_.end(),
                       [&](const Vendor& vendor) { return vendor.names == names; });
}

// The device of that name, or the one whose only GPU this is: tools may name devices by numbers.
const CdiDevice* NodeGpus::SpecOf(const Vendor& vendor, const std::string& id) const {
  const gpu::NodeGpu* const gpu = GpuWithId(vendor.gpus, id);
  for (const std::string_view kind : vendor.names->CdiKinds()) {
    if (const CdiDevice* const device = specs_.Find(kind, id)) return device;
    if (gpu == nullptr) continue;
    for (const auto& [name, device] : specs_.DevicesOf(kind)) {
      const std::vector<std::string> files = device.own.DeviceFiles();
      if (HasFilesOfParts(*vendor.names, files)) continue;
      const auto gpus = GpusWithFiles(vendor.gpus, files);
      if (gpus.size() == 1 && gpus.front() == gpu) return &device;
    }
  }
  return nullptr;
}

Result<NodeGpus::Access> NodeGpus::AccessToClaimed(const Vendor& vendor,
                                                   const GpuName& name) const {
  Access access;
  for (const std::string& cdi_name : name.cdi_names) {
    const CdiDevice* const device = specs_.Find(cdi_name);
    if (device == nullptr) {
      return Fail(ErrorCode::kNotFound,
                  "no CDI spec of this node has the claimed device " + cdi_name,
                  "--cdi-spec-dirs must name the folders that the driver writes to");
    }
    const std::vector<std::string> files = device->all.DeviceFiles();
    if (HasFilesOfParts(*vendor.names, files)) {
      return Fail(ErrorCode::kNotExportable,
                  "the claimed device " + cdi_name +
                      " is a part of a GPU, whose memory is not shared with others",
                  "let the workload claim whole GPUs, or set --missing-gpu=rdmaOnly");
    }
    access.Add(*device);
    for (const gpu::NodeGpu* gpu : GpusWithFiles(vendor.gpus, files)) {
      access.Add(*gpu);
    }
  }
  return access;
}

Result<NodeGpus::Access> NodeGpus::AccessTo(const GpuName& name) const {
  const Vendor& vendor = VendorOf(name.vendor);
  if (name.id.empty()) return AccessToClaimed(vendor, name);
  const gpu::NodeGpu* gpu = GpuWithId(vendor.gpus, name.id);
  const CdiDevice* const device = SpecOf(vendor, name.id);
  if (device == nullptr && gpu == nullptr && !vendor.names->NamesGpu(name.id)) {
    return Fail(ErrorCode::kNotExportable,
                "the device id " + name.id + " does not say which GPU it stands for",
                "give the workload GPUs by a plugin whose ids do (docs/device_plugin.md lists "
                "them), or set --missing-gpu=rdmaOnly");
  }
  if (device == nullptr && gpu == nullptr) {
    return Fail(ErrorCode::kNotFound,
                "the GPU " + name.id + " is in no CDI spec of this node, nor in its file system",
                "is the GPU's driver loaded on this node, and do --cdi-spec-dirs name the folders "
                "of its CDI specs?");
  }
  if (device != nullptr && HasFilesOfParts(*vendor.names, device->own.DeviceFiles())) {
    return Fail(ErrorCode::kNotExportable,
                "the device " + name.id + " is a part of a GPU, whose memory is not shared",
                "give the workload whole GPUs, or set --missing-gpu=rdmaOnly");
  }
  if (device != nullptr && gpu == nullptr) {
    const auto gpus = GpusWithFiles(vendor.gpus, device->own.DeviceFiles());
    if (gpus.size() == 1) gpu = gpus.front();
  }
  Access access;
  access.Add(gpu == nullptr ? gpu::NodeGpu{name.id, {}, {}} : *gpu);
  if (device != nullptr) {
    access.Add(*device);
    return access;
  }
  access.edits.AddDeviceFile(gpu->device_file);
  for (const std::string_view file : vendor.names->SharedDeviceFiles()) {
    access.edits.AddDeviceFile(file);
  }
  return access;
}

Result<GpuGrant> NodeGpus::Grant(const std::vector<GpuName>& own,
                                 const std::vector<GpuName>& others) const {
  GpuGrant grant;
  std::map<const gpu::ClusterGpus*, std::vector<std::string>> without_spec;
  const auto add = [&](const GpuName& name, const Access& access) {
    grant.edits.Merge(access.edits);
    grant.cdi_version = LaterCdiVersion(grant.cdi_version, access.cdi_version);
    if (access.by_spec) return;
    for (const std::string& id : access.ids) AddOnce(id, without_spec[name.vendor]);
  };
  for (const GpuName& name : own) {
    ASSIGN_OR_RETURN(const Access access, AccessTo(name));
    add(name, access);
    for (const std::string& id : access.ids) AddOnce(id, grant.ids);
    for (const std::string& address : access.pci_addresses) AddOnce(address, grant.pci_addresses);
  }
  for (const GpuName& name : others) {
    const auto access = AccessTo(name);
    if (!access) {
      log::Warning("a GPU of a peer is not granted", {{"error", access.error()}});
      continue;
    }
    add(name, *access);
    for (const std::string& id : access->ids) {
      if (std::find(grant.ids.begin(), grant.ids.end(), id) == grant.ids.end()) {
        AddOnce(id, grant.other_ids);
      }
    }
  }
  for (const auto& [vendor, ids] : without_spec) {
    for (const std::string& variable : vendor->RuntimeVariables(ids)) {
      const size_t equals = variable.find('=');
      grant.edits.AddVariable(variable.substr(0, equals), variable.substr(equals + 1));
    }
  }
  return grant;
}

std::vector<GpuName> NodeGpus::All() const {
  std::vector<GpuName> names;
  for (const Vendor& vendor : vendors_) {
    for (const gpu::NodeGpu& gpu : vendor.gpus) names.push_back({vendor.names, gpu.id, {}});
  }
  return names;
}

std::vector<std::string> NodeGpus::PciAddresses() const {
  std::vector<std::string> addresses;
  for (const Vendor& vendor : vendors_) {
    for (const gpu::NodeGpu& gpu : vendor.gpus) {
      if (!gpu.pci_address.empty()) addresses.push_back(gpu.pci_address);
    }
  }
  return addresses;
}

}  // namespace gantry::deviceplugin
