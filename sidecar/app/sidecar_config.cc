#include "sidecar/app/sidecar_config.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <iostream>
#include <type_traits>
#include <utility>
#include <variant>

#include "lib/base/host_port.h"
#include "lib/base/name.h"
#include "lib/base/uid_set.h"
#include "lib/base/version.h"
#include "sidecar/app/settings.h"
#include "sidecar/worker/channel/gpu_copy_costs.h"

namespace gantry {
namespace {

std::string HostName() {
  std::array<char, 256> name = {};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "gantry";
  return name.data();
}

std::string HeadingOf(settings::Level level) {
  switch (level) {
    case settings::Level::kNormal:
      return "Settings that an installation decides";
    case settings::Level::kTuning:
      return "Tuning: for a load or a machine";
    case settings::Level::kExpert:
      return "Expert: for a fault or a measurement";
  }
  return "";
}

void Restrict(CLI::Option& option, const settings::Bounds& bounds) {
  if (const auto* const range = std::get_if<settings::Range>(&bounds)) {
    const auto [minimum, maximum] = *range;
    // Read as signed numbers: among unsigned ones -1 would be a large one.
    option.check(
        CLI::Range(minimum, maximum,
                   "in [" + std::to_string(minimum) + " - " + std::to_string(maximum) + "]"));
  } else if (const auto* const words = std::get_if<settings::Words>(&bounds)) {
    option.check(CLI::IsMember(std::vector<std::string>(words->begin(), words->end())));
  } else if (const auto* const numbers = std::get_if<settings::Numbers>(&bounds)) {
    option.check(CLI::IsMember(std::vector<uint32_t>(numbers->begin(), numbers->end())));
  }
}

template <typename Value>
void Add(CLI::App& app, const settings::Setting& setting, Value& value) {
  const std::string flag(setting.flag);
  const std::string help = settings::HelpText(setting);
  CLI::Option* option = nullptr;
  if constexpr (std::is_same_v<Value, bool>) {
    option = app.add_flag(flag, value, help);
  } else {
    option = app.add_option(flag, value, help)->capture_default_str();
    Restrict(*option, setting.bounds);
  }
  if constexpr (std::is_same_v<Value, std::vector<std::string>>) option->delimiter(',');
  if constexpr (std::is_same_v<Value, uint8_t>) {
    option->default_str(std::to_string(value));  // CLI11 would print it as a character
  }
  option->envname(settings::EnvironmentName(flag))->group(HeadingOf(setting.level));
}

// CLI11 prints the groups of --help in the order of their first options.
void AddSettings(CLI::App& app, SidecarConfig& config) {
  const std::vector<settings::Group> groups = settings::AllSettings();
  for (const settings::Level level : settings::kLevels) {
    for (const settings::Group& group : groups) {
      for (const settings::Setting& setting : group.settings) {
        if (setting.level != level) continue;
        std::visit([&](auto field) { Add(app, setting, config.*field); }, setting.field);
      }
    }
  }
}

Status CheckAddress(const std::string& flag, const std::string& value) {
  if (value.empty() || ParseHostPort(value)) return {};
  return Fail(ErrorCode::kInvalidArgument, flag + ": '" + value + "' is no address with a port",
              "write 127.0.0.1:7580 or [::1]:7580; 0.0.0.0:7580 is every address of IPv4, and "
              "[::]:7580 of IPv6, too");
}

Status CheckTogether(const SidecarConfig& config) {
  RETURN_IF_ERROR(CheckAddress("--rest-listen", config.rest_listen));
  RETURN_IF_ERROR(CheckAddress("--metrics-listen", config.metrics_listen));
  RETURN_IF_ERROR(CheckAddress("--health-listen", config.health_listen));
  RETURN_IF_ERROR(CheckAddress("--peer-listen", config.peer_listen));
  RETURN_IF_ERROR(CheckAddress("--data-listen", config.data_listen));
  if (config.deadline_ms_default > config.deadline_ms_max) {
    return Fail(ErrorCode::kInvalidArgument,
                "--deadline-ms-default (" + std::to_string(config.deadline_ms_default) +
                    ") is larger than --deadline-ms-max (" +
                    std::to_string(config.deadline_ms_max) + ")",
                "set both");
  }
  if (Status name = CheckName(config.name, ""); !name) {
    return Fail(std::move(name).error().WithContext("--name"));
  }
  if (config.staging_bytes != 0 && config.staging_bytes < SidecarConfig::kStagingBytesMin) {
    return Fail(ErrorCode::kInvalidArgument, "--staging-bytes is less than " +
                                                 std::to_string(SidecarConfig::kStagingBytesMin) +
                                                 ", which the largest requests of peers need");
  }
  if (auto costs = worker::ParseCosts(config.gpu_copy_costs); !costs) {
    return Fail(std::move(costs).error().WithContext("--gpu-copy-costs"));
  }
  if (auto uids = UidSet::Parse(config.node_uids); !uids) {
    return Fail(std::move(uids).error().WithContext("--node-uids"));
  }
  return {};
}

}  // namespace

ParsedConfig ParseSidecarConfig(int argc, const char* const* argv) {
  ParsedConfig parsed;
  SidecarConfig& config = parsed.config;
  config.name = HostName();
  CLI::App app("Gantry sidecar: moves memory between inference pods", "gantry-sidecar");
  app.set_version_flag("--version", std::string(Version()));
  bool print_settings = false;
  app.add_flag("--print-config", config.print_config, "Print the value of each setting and exit.");
  app.add_flag("--print-settings", print_settings,
               "Print what there is to know about each setting, as JSON, and exit.");
  AddSettings(app, config);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    parsed.outcome = ConfigOutcome::kExit;
    if (app.exit(error) == 0) return parsed;
    parsed.exit_code = kExitUsage;
    parsed.usage_error = error.what();
    return parsed;
  }
  if (auto status = CheckTogether(config); !status) {
    std::cerr << "gantry-sidecar: " << status.error().message << "\n";
    if (!status.error().hint.empty()) std::cerr << "  " << status.error().hint << "\n";
    parsed.outcome = ConfigOutcome::kExit;
    parsed.exit_code = kExitUsage;
    parsed.usage_error = status.error().message;
  } else if (print_settings || config.print_config) {
    std::cout << (print_settings
                      ? settings::AllSettingsAsJson() + "\n"
                      : app.config_to_str(/*default_also=*/true, /*write_description=*/false));
    parsed.outcome = ConfigOutcome::kExit;
    if (!std::cout.flush()) {
      std::cerr << "gantry-sidecar: standard output cannot be written to\n";
      parsed.exit_code = 1;
    }
  }
  return parsed;
}

}  // namespace gantry
