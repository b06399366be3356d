#include "connectors/nixl/agent/nixl_plugin_config.h"

#include <charconv>
#include <cstdlib>
#include <string_view>

namespace gantry::nixl {
namespace {

constexpr char kRunDirVariable[] = "GANTRY_RUN_DIR";
constexpr char kHostVariable[] = "GANTRY_POD_IP";
constexpr char kAnyVersionVariable[] = "GANTRY_NIXL_ANY_VERSION";
constexpr char kDefaultRunDir[] = "/run/gantry";
constexpr uint64_t kTimeoutMsMax = 60'000;
constexpr uint64_t kDeadlineMsMax = 86'400'000;

std::string Variable(const char* name, std::string_view otherwise) {
  const char* value = std::getenv(name);
  return std::string(value != nullptr ? std::string_view(value) : otherwise);
}

Result<uint64_t> ReadNumber(const std::string& name, std::string_view text, uint64_t least,
                            uint64_t most) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size() && value >= least && value <= most)
    return value;
  return Fail(ErrorCode::kInvalidArgument,
              "the parameter " + name + " is '" + std::string(text) + "'",
              "a number from " + std::to_string(least) + " to " + std::to_string(most), name);
}

Result<bool> ReadYesOrNo(const std::string& name, const std::string& text) {
  if (text == "yes" || text == "no") return text == "yes";
  return Fail(ErrorCode::kInvalidArgument, "the parameter " + name + " is '" + text + "'",
              "yes or no", name);
}

}  // namespace

bool AllowsNewerNixl() { return Variable(kAnyVersionVariable, "") == "1"; }

Parameters DefaultParameters() {
  return {{"run_dir", Variable(kRunDirVariable, kDefaultRunDir)},
          {"host", Variable(kHostVariable, "")},
          {"timeout_ms", std::to_string(PluginConfig().timeout_ms)},
          {"deadline_ms", "0"},
          {"require_path", ""},
          {"adopt_private", "yes"}};
}

Result<PluginConfig> ReadPluginConfig(const Parameters& parameters) {
  Parameters all = DefaultParameters();
  for (const auto& [name, value] : parameters) {
    const auto found = all.find(name);
    if (found == all.end()) {
      return Fail(ErrorCode::kInvalidArgument, "there is no parameter '" + name + "'",
                  "run_dir, host, timeout_ms, deadline_ms, require_path or adopt_private", name);
    }
    found->second = value;
  }
  PluginConfig config;
  config.run_dir = all["run_dir"];
  config.host = all["host"];
  config.require_path = all["require_path"];
  ASSIGN_OR_RETURN(config.timeout_ms,
                   ReadNumber("timeout_ms", all["timeout_ms"], 1, kTimeoutMsMax));
  ASSIGN_OR_RETURN(config.deadline_ms,
                   ReadNumber("deadline_ms", all["deadline_ms"], 0, kDeadlineMsMax));
  ASSIGN_OR_RETURN(config.adopts_private, ReadYesOrNo("adopt_private", all["adopt_private"]));
  return config;
}

}  // namespace gantry::nixl
