#include "deviceplugin/plugin_config.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cctype>
#include <iostream>
#include <utility>

#include "deviceplugin/slot_list.h"
#include "lib/base/result.h"
#include "lib/base/version.h"

namespace gantry::deviceplugin {
namespace {

constexpr size_t kResourceLengthMax = 120;     // it is part of file names
constexpr size_t kResourceNameLengthMax = 63;  // behind the slash, as Kubernetes has it

// --cdi-dir is also GANTRY_DP_CDI_DIR.
std::string EnvironmentName(const std::string& flag) {
  std::string name = "GANTRY_DP_";
  for (const char c : flag.substr(2)) {
    name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return name;
}

template <typename T>
CLI::Option* Add(CLI::App& app, const std::string& flag, T& value, const std::string& text) {
  return app.add_option(flag, value, text)->envname(EnvironmentName(flag))->capture_default_str();
}

void AddPlaces(CLI::App& app, PluginConfig& config) {
  Add(app, "--kubelet-dir", config.kubelet_dir, "the kubelet's folder of device plugins");
  Add(app, "--pod-resources-dir", config.pod_resources_dir,
      "the kubelet's folder of the PodResources socket");
  Add(app, "--cdi-dir", config.cdi_dir,
      "folder of CDI specs that the container runtime watches; one file for each slot in use");
  Add(app, "--cdi-spec-dirs", config.cdi_spec_dirs,
      "folders of the CDI specs of the GPUs' vendor, with commas between; the later one outranks "
      "the earlier")
      ->delimiter(',');
  Add(app, "--peer-dir", config.peer_dir,
      "folder of the host with one folder for each namespace, in which its sidecars find each "
      "other");
  Add(app, "--host-root", config.host_root, "where /sys and /proc of the host are");
  Add(app, "--metrics-listen", config.metrics_listen, "address:port for /metrics; empty: none");
  Add(app, "--health-listen", config.health_listen,
      "address:port for grpc.health.v1, in plaintext; empty: none");
  Add(app, "--log-level", config.log_level, "debug, info, warning or error")
      ->check(CLI::IsMember({"debug", "info", "warning", "error"}));
}

void AddRules(CLI::App& app, PluginConfig& config) {
  Add(app, "--resource", config.resource,
      "name of the resource that sidecars ask for; also the CDI kind of its slots");
  Add(app, "--slots", config.slots, "how many sidecars the node may have")
      ->check(CLI::Range(1, SlotList::kSlotsMax));
  Add(app, "--binding", config.binding,
      "cdi: a slot is given its own pod's devices just before its container starts; allocate, for "
      "runtimes without CDI: every slot is given all devices of the node")
      ->check(CLI::IsMember({"cdi", "allocate"}));
  Add(app, "--missing-gpu", config.missing_gpu,
      "fail: a container whose pod has no GPU that it can share is not started; rdmaOnly: it is, "
      "without GPUs")
      ->check(CLI::IsMember({"fail", "rdmaOnly"}));
  Add(app, "--peer-gpu-visibility", config.peer_gpu_visibility,
      "GPUs of other pods that a sidecar beside GPUs may use: none, those of its namespace's pods "
      "with a sidecar that are there when it starts, or all of the node")
      ->check(CLI::IsMember({"none", "namespace", "node"}));
  app.add_flag("--no-rdma", config.no_rdma, "give slots no RDMA devices")
      ->envname(EnvironmentName("--no-rdma"));
  app.add_flag("--require-rdma", config.require_rdma,
               "offer slots only while an RDMA device has an active port")
      ->envname(EnvironmentName("--require-rdma"));
  Add(app, "--rdma-devices", config.rdma_devices,
      "exactly these RDMA devices for every slot, with commas between; empty: those nearest to "
      "its GPUs")
      ->delimiter(',');
  Add(app, "--rdma-exclude", config.rdma_exclude, "never these, with commas between")
      ->delimiter(',');
  Add(app, "--instance", config.instance,
      "distinguishes plugins of one resource on a node, in the name of the socket; empty: random");
  Add(app, "--settle-ms", config.settle_ms,
      "from writing a CDI spec until the container may start: runtimes read it a moment later")
      ->check(CLI::Range(0, 5'000));
  Add(app, "--reconcile-ms", config.reconcile_ms, "between comparisons with the node's pods")
      ->check(CLI::Range(10, 3'600'000));
  app.add_flag("--dry-run", config.dry_run,
               "print as JSON what the slots of the node's pods would be given now, and exit");
  app.add_flag("--print-config", config.print_config, "print every setting and exit");
}

// As CDI has vendors and classes.
bool IsCdiName(std::string_view name) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz";
  constexpr std::string_view kAllowed = "abcdefghijklmnopqrstuvwxyz0123456789.-";
  return !name.empty() && name.find_first_not_of(kAllowed) == std::string_view::npos &&
         kLetters.find(name.front()) != std::string_view::npos && name.back() != '-' &&
         name.back() != '.';
}

// Dots separate its parts, and none begins or ends with a dash.
bool IsDomain(std::string_view name) {
  return IsCdiName(name) && name.find('.') != std::string_view::npos &&
         name.find("..") == std::string_view::npos && name.find(".-") == std::string_view::npos &&
         name.find("-.") == std::string_view::npos;
}

// The kubelet takes no other resource from a device plugin.
bool IsOfKubernetes(std::string_view resource) {
  return resource.find("kubernetes.io/") != std::string_view::npos ||
         resource.starts_with("requests.");
}

// "vendor.domain/class", as both Kubernetes and CDI want it.
Status CheckResource(const std::string& resource) {
  const size_t slash = resource.find('/');
  const std::string_view domain = std::string_view(resource).substr(0, slash);
  const std::string_view name = slash == std::string::npos
                                    ? std::string_view()
                                    : std::string_view(resource).substr(slash + 1);
  if (!IsDomain(domain) || !IsCdiName(name)) {
    return Fail(ErrorCode::kInvalidArgument,
                "--resource '" + resource +
                    "' is not of the form domain.name/resource, in lower case, each beginning with "
                    "a letter");
  }
  if (resource.size() > kResourceLengthMax || name.size() > kResourceNameLengthMax) {
    return Fail(ErrorCode::kInvalidArgument,
                "--resource '" + resource + "' is longer than " +
                    std::to_string(kResourceLengthMax) + " letters, or than " +
                    std::to_string(kResourceNameLengthMax) + " behind the slash");
  }
  if (IsOfKubernetes(resource)) {
    return Fail(ErrorCode::kInvalidArgument,
                "--resource '" + resource +
                    "' is a name that Kubernetes keeps for itself: kubernetes.io/ and what begins "
                    "with requests.");
  }
  return {};
}

// Part of the name of a socket.
Status CheckInstance(const std::string& instance) {
  const bool plain = std::all_of(instance.begin(), instance.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '.' || c == '_';
  });
  if (plain) return {};
  return Fail(ErrorCode::kInvalidArgument,
              "--instance '" + instance + "' has more than letters, digits, '-', '.' and '_'");
}

// They go into addresses of sockets and into specs, where nobody knows this process's folder.
Status CheckPaths(const PluginConfig& config) {
  const std::array<std::pair<std::string_view, const std::string*>, 4> folders = {
      {{"--kubelet-dir", &config.kubelet_dir},
       {"--pod-resources-dir", &config.pod_resources_dir},
       {"--cdi-dir", &config.cdi_dir},
       {"--peer-dir", &config.peer_dir}}};
  for (const auto& [flag, folder] : folders) {
    if (folder->starts_with('/')) continue;
    return Fail(ErrorCode::kInvalidArgument,
                std::string(flag) + " '" + *folder + "' does not begin with a slash");
  }
  return {};
}

Status CheckTogether(const PluginConfig& config) {
  RETURN_IF_ERROR(CheckResource(config.resource));
  RETURN_IF_ERROR(CheckInstance(config.instance));
  RETURN_IF_ERROR(CheckPaths(config));
  if (config.no_rdma && config.require_rdma) {
    return Fail(ErrorCode::kInvalidArgument, "--no-rdma and --require-rdma exclude each other");
  }
  return {};
}

}  // namespace

ParsedPluginConfig ParsePluginConfig(int argc, const char* const* argv) {
  ParsedPluginConfig parsed;
  PluginConfig& config = parsed.config;
  CLI::App app("Gantry device plugin: gives sidecars the devices of their pods",
               "gantry-device-plugin");
  app.set_version_flag("--version", std::string(Version()));
  AddPlaces(app, config);
  AddRules(app, config);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    parsed.outcome = ConfigOutcome::kExit;
    parsed.exit_code = app.exit(error) == 0 ? 0 : 2;
    return parsed;
  }
  if (auto status = CheckTogether(config); !status) {
    std::cerr << "gantry-device-plugin: " << status.error().message << "\n";
    parsed.outcome = ConfigOutcome::kExit;
    parsed.exit_code = 2;
  } else if (config.print_config) {
    std::cout << app.config_to_str(/*default_also=*/true, /*write_description=*/false);
    parsed.outcome = ConfigOutcome::kExit;
  }
  return parsed;
}

}  // namespace gantry::deviceplugin
