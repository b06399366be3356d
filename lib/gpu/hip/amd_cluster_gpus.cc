#include "lib/gpu/hip/amd_cluster_gpus.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <fstream>

namespace gantry::gpu {
namespace {

namespace fs = std::filesystem;

// Of the vendor's device plugin: whole GPUs, and partitions under the names of their modes,
// "amd.com/cpx_nps1". The same domain has FPGAs.
constexpr std::string_view kResource = "amd.com/gpu";
constexpr std::array<std::string_view, 5> kPartitions = {
    "amd.com/spx_", "amd.com/dpx_", "amd.com/tpx_", "amd.com/qpx_", "amd.com/cpx_"};
constexpr std::string_view kDriver = "gpu.amd.com";
constexpr std::array<std::string_view, 2> kCdiKinds = {"amd.com/gpu", "k8s.gpu.amd.com/device"};
constexpr std::array<std::string_view, 1> kSharedFiles = {"/dev/kfd"};
constexpr std::string_view kVendorId = "0x1002";
constexpr std::string_view kPartitionDevice = "amdgpu_xcp";
constexpr std::string_view kGpuFiles = "/dev/dri/renderD";
constexpr std::string_view kDigits = "0123456789";
constexpr std::string_view kPciAddressForm = "xxxx:xx:xx.x";

bool IsOf(std::string_view text, std::string_view letters) {
  return !text.empty() && text.find_first_not_of(letters) == std::string_view::npos;
}

bool IsPciAddress(std::string_view id) {
  return id.size() == kPciAddressForm.size() &&
         std::equal(id.begin(), id.end(), kPciAddressForm.begin(), [](char c, char form) {
           return form == 'x' ? std::isxdigit(static_cast<unsigned char>(c)) != 0 : c == form;
         });
}

// The render node below a device's folder of sysfs: "renderD128"; empty: it has none.
std::string RenderNodeOf(const fs::path& device) {
  std::error_code error;
  for (fs::directory_iterator entry(device / "drm", error), end; !error && entry != end;
       entry.increment(error)) {
    std::string name = entry->path().filename();
    if (name.starts_with("renderD")) return name;
  }
  return {};
}

bool IsOfVendor(const fs::path& device) {
  std::string vendor;
  std::getline(std::ifstream(device / "vendor"), vendor);
  return vendor == kVendorId;
}

void AddFrom(const fs::path& folder, bool of_pci, std::vector<NodeGpu>& gpus) {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename();
    if (of_pci ? !IsOfVendor(entry->path()) : !name.starts_with(kPartitionDevice)) continue;
    const std::string render = RenderNodeOf(entry->path());
    if (render.empty()) continue;
    gpus.push_back({name, of_pci ? name : std::string(), "/dev/dri/" + render});
  }
}

class Amd final : public ClusterGpus {
 public:
  bool OwnsResource(std::string_view resource) const override {
    return resource == kResource ||
           std::any_of(kPartitions.begin(), kPartitions.end(),
                       [&](std::string_view prefix) { return resource.starts_with(prefix); });
  }
  bool OwnsDriver(std::string_view driver) const override { return driver == kDriver; }
  std::span<const std::string_view> CdiKinds() const override { return kCdiKinds; }

  Result<std::string> GpuIdOf(std::string_view device_id) const override {
    return std::string(device_id);
  }

  bool NamesGpu(std::string_view id) const override {
    return id.starts_with(kPartitionDevice) || IsPciAddress(id);
  }
  bool IsGpuFile(std::string_view path) const override {
    return path.starts_with(kGpuFiles) && IsOf(path.substr(kGpuFiles.size()), kDigits);
  }

  // The device plugin names GPUs by their PCI addresses, and further partitions of one by their
  // platform devices (amdgpu_xcp_30).
  std::vector<NodeGpu> List(const std::string& root) const override {
    std::vector<NodeGpu> gpus;
    AddFrom(fs::path(root) / "sys/bus/pci/devices", true, gpus);
    AddFrom(fs::path(root) / "sys/devices/platform", false, gpus);
    std::sort(gpus.begin(), gpus.end(),
              [](const NodeGpu& a, const NodeGpu& b) { return a.id < b.id; });
    return gpus;
  }

  std::span<const std::string_view> SharedDeviceFiles() const override { return kSharedFiles; }
  std::vector<std::string> RuntimeVariables(const std::vector<std::string>&) const override {
    return {};  // its userspace is in the image
  }
};

}  // namespace

std::unique_ptr<const ClusterGpus> AmdClusterGpus() { return std::make_unique<Amd>(); }

// Render nodes are of any vendor's: the PCI bus says whose they are.
std::vector<std::string> AmdDeviceFiles(const std::string& root) {
  std::vector<std::string> files;
  std::error_code error;
  for (const NodeGpu& gpu : AmdClusterGpus()->List(root)) {
    if (fs::exists(root + gpu.device_file, error)) files.push_back(gpu.device_file);
  }
  return files;
}

}  // namespace gantry::gpu
