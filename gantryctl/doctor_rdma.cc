// RDMA devices, what keeps peers from reaching them, and what keeps memory from being registered.
#include <arpa/inet.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <system_error>
#include <vector>

#include "gantryctl/doctor.h"
#include "gantryctl/json_field.h"
#include "gantryctl/kernel_options.h"
#include "gantryctl/size_text.h"
#include "lib/topology/sysfs_devices.h"
#include "lib/topology/sysfs_file.h"

namespace gantry::gantryctl {
namespace {

namespace fs = std::filesystem;
using topology::Entries;
using topology::FirstLine;

constexpr int kCapIpcLock = 14;

// What follows `key` in the line that begins with it; nothing when no line does.
std::optional<std::string> Line(const fs::path& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(key)) return line.substr(key.size());
  }
  return std::nullopt;
}

Finding WithoutDevices(const std::string& root) {
  std::error_code error;
  const bool has_class = fs::is_directory(fs::path(root) / "sys/class/infiniband", error);
  return {Level::kOk, "RDMA",
          std::string("no device") +
              (has_class ? " is seen here: there is none, or those there are belong to another "
                           "network namespace"
                         : ": the kernel has no RDMA, or none of its drivers is loaded") +
              "; memory moves by ipc and shm on one node, and by tcp between nodes",
          ""};
}

std::string PortStates(const fs::path& device) {
  std::string states;
  for (const fs::path& port : Entries(device / "ports")) {
    const std::string state = FirstLine(port / "state");  // "1: DOWN"
    const size_t name = state.find(": ");
    states += (states.empty() ? "port " : ", port ") + port.filename().string() + " is " +
              (name == std::string::npos ? "in no state" : state.substr(name + 2));
  }
  return states.empty() ? "it has no port" : states;
}

// "::ffff:10.0.0.1" for what sysfs writes in full.
std::string ShortGid(const std::string& gid) {
  in6_addr address{};
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (inet_pton(AF_INET6, gid.c_str(), &address) != 1) return gid;
  return inet_ntop(AF_INET6, &address, text.data(), text.size());
}

struct RoceGids {
  std::string routable;  // the first, as sysfs writes it
  bool link_local = false;
};

// Of the ports that are active and Ethernet; nothing when there is no such port.
std::optional<RoceGids> RoceV2Gids(const fs::path& device) {
  std::optional<RoceGids> found;
  for (const fs::path& port : Entries(device / "ports")) {
    if (FirstLine(port / "link_layer") != "Ethernet" ||
        FirstLine(port / "state").find("ACTIVE") == std::string::npos) {
      continue;
    }
    if (!found) found.emplace();
    for (const fs::path& type : Entries(port / "gid_attrs/types")) {
      if (FirstLine(type) != "RoCE v2") continue;
      const std::string gid = FirstLine(port / "gids" / type.filename());
      if (gid.find_first_not_of("0:") == std::string::npos) continue;
      if (gid.starts_with("fe80:")) {
        found->link_local = true;
      } else if (found->routable.empty()) {
        found->routable = gid;
      }
    }
  }
  return found;
}

Finding ExamineDeviceFile(const topology::RdmaDevice& device, const std::string& root) {
  const std::string subject = "RDMA " + device.name;
  if (device.device_file.empty()) {
    return {Level::kWarn, subject, "active, but programs have no device file for it",
            "load the module ib_uverbs on the host"};
  }
  const std::string path = root + device.device_file;
  if (access(path.c_str(), F_OK) != 0) {
    return {Level::kWarn, subject, "active, but " + device.device_file + " is not to be had here",
            "give the container the device: by the device plugin, or docker run --device " +
                device.device_file};
  }
  if (access(path.c_str(), R_OK | W_OK) != 0) {
    return {Level::kWarn, subject, "active, but this user may not open " + device.device_file,
            "run as a user who may, or let a udev rule of the host give it mode 0666"};
  }
  const topology::RdmaPort& port = *device.ActivePort();
  return {Level::kOk, subject, port.link_layer + ", " + port.rate, ""};
}

Finding ExamineRdmaDevice(const topology::RdmaDevice& device, const std::string& root) {
  const std::string subject = "RDMA " + device.name;
  const fs::path folder = fs::path(root) / "sys/class/infiniband" / device.name;
  const topology::RdmaPort* const port = device.ActivePort();
  if (port == nullptr) {
    return {Level::kWarn, subject, "no port is active: " + PortStates(folder),
            "check cable and switch, and that its network interface is up"};
  }
  Finding finding = ExamineDeviceFile(device, root);
  const auto gids = RoceV2Gids(folder);
  if (finding.level != Level::kOk || !gids) return finding;
  if (gids->routable.empty()) {
    return {Level::kWarn, subject,
            gids->link_local ? "active, but its only RoCE v2 addresses are link-local: no peer "
                               "beyond its own network can reach it"
                             : "active, but it has no GID for RoCE v2: no peer can reach it",
            "give its network interface an IP address, in the network namespace of the sidecar"};
  }
  finding.said += "; RoCE v2 by GID " + ShortGid(gids->routable);
  return finding;
}

bool MayLockWithoutLimit(const std::string& root) {
  const auto mask = Line(fs::path(root) / "proc/self/status", "CapEff:");
  uint64_t capabilities = 0;
  return mask && std::istringstream(*mask) >> std::hex >> capabilities &&
         (capabilities >> kCapIpcLock & 1) != 0;
}

uint64_t MemoryBytes(const std::string& root) {
  const auto total = Line(fs::path(root) / "proc/meminfo", "MemTotal:");
  uint64_t kib = 0;
  if (total) std::istringstream(*total) >> kib;
  return kib * 1024;
}

Finding ExamineLockedMemory(const std::string& root, bool has_devices) {
  const std::string subject = "limit memlock";
  const auto line = Line(fs::path(root) / "proc/self/limits", "Max locked memory");
  std::string soft;
  if (!line || !(std::istringstream(*line) >> soft)) {
    return {has_devices ? Level::kWarn : Level::kOk, subject,
            "unknown: /proc/self/limits does not say it", has_devices ? "mount /proc here" : ""};
  }
  uint64_t bytes = 0;
  if (!(std::istringstream(soft) >> bytes)) {
    return {Level::kOk, subject, soft + " locked memory", ""};
  }
  const std::string said = FormatSize(bytes) + " of locked memory";
  if (!has_devices) return {Level::kOk, subject, said + " (matters to RDMA alone)", ""};
  if (MayLockWithoutLimit(root)) {
    return {Level::kOk, subject, said + ", which CAP_IPC_LOCK exempts this process from", ""};
  }
  // More than there is cannot be asked for.
  if (const uint64_t memory = MemoryBytes(root); memory > 0 && bytes >= memory) {
    return {Level::kOk, subject, said + ", as much as the machine has", ""};
  }
  return {Level::kWarn, subject,
          said +
              ": a sidecar with this limit cannot register more memory of the host than that "
              "with RDMA devices",
          "make it unlimited. docker: --ulimit memlock=-1. A systemd service: "
          "LimitMEMLOCK=infinity. Kubernetes has no field for it, pods have their runtime's: "
          "LimitMEMLOCK=infinity in the unit of containerd (systemctl edit containerd), then "
          "restart it and the pods"};
}

// Only where there are devices of both kinds.
Finding ExamineDmaBuf(const std::string& root) {
  const std::string subject = "dma-buf";
  const auto options = ReadKernelOptions(root);
  if (!options) {
    return {Level::kOk, subject,
            "unknown: neither /proc/config.gz nor the kernel's file in /boot can be read here", ""};
  }
  std::string off, silent;
  for (const char* name : {"DMABUF_MOVE_NOTIFY", "PCI_P2PDMA"}) {
    const KernelOption option = FindKernelOption(*options, name);
    std::string& list = option == KernelOption::kOff ? off : silent;
    if (option != KernelOption::kOn) {
      list += std::string(list.empty() ? "" : " and ") + "CONFIG_" + name;
    }
  }
  if (!off.empty()) {
    return {Level::kWarn, subject,
            "the kernel is built without " + off + " (" + options->path +
                "): drivers that need it export no memory of GPUs to RDMA devices, and what "
                "moves there goes through memory of the host",
            "boot a kernel that has it, where memory of GPUs is to move by RDMA"};
  }
  if (!silent.empty()) {
    return {Level::kOk, subject, "unknown: " + options->path + " does not mention " + silent, ""};
  }
  return {Level::kOk, subject,
          "the kernel has what memory of GPUs takes to be exported to RDMA devices (" +
              options->path + ")",
          ""};
}

}  // namespace

Findings ExamineRdmaInUse(const nlohmann::json& status) {
  Findings findings;
  const bool has_gpus = !MemberOf(status, "gpus").empty();
  for (const nlohmann::json& device : MemberOf(status, "rdma_devices")) {
    const std::string subject = "RDMA " + TextOf(device, "name") + " and GPUs";
    if (FlagOf(device, "takes_dma_bufs")) {
      findings.push_back({Level::kOk, subject,
                          "it takes dma-bufs: memory of GPUs moves by RDMA where its owner hands "
                          "one over, which GET /v1/buffers tells",
                          ""});
      continue;
    }
    const std::string why = TextOf(device, "no_dma_buf_because");
    if (!has_gpus) {
      findings.push_back({Level::kOk, subject, why, ""});
      continue;
    }
    findings.push_back({Level::kWarn, subject, why + ": memory of GPUs bounces through the host",
                        "use devices that take dma-bufs (those of mlx5 do, with Linux 5.12 or "
                        "later), and leave others out by --rdma-devices: a buffer is registered "
                        "with all or with none"});
  }
  return findings;
}

Findings ExamineRdma(const std::string& root) {
  Findings findings;
  const auto devices = topology::ListRdmaDevices(root);
  for (const auto& device : devices) findings.push_back(ExamineRdmaDevice(device, root));
  if (devices.empty()) findings.push_back(WithoutDevices(root));
  findings.push_back(ExamineLockedMemory(root, !devices.empty()));
  if (!devices.empty() && !topology::ListPciAccelerators(root).empty()) {
    findings.push_back(ExamineDmaBuf(root));
  }
  return findings;
}

}  // namespace gantry::gantryctl
