// The table of the sidecar's settings. The parser, --help, --print-settings, docs/settings.md and
// the chart's schema are made from it, so each fact about a setting stands here once.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "sidecar/app/sidecar_config.h"

namespace gantry::settings {

// kNormal: an installation decides it. kTuning: a load or a machine may want another value.
// kExpert: leave it, unless a fault or a measurement asks for another value.
enum class Level : uint8_t { kNormal, kTuning, kExpert };
inline constexpr std::array kLevels = {Level::kNormal, Level::kTuning, Level::kExpert};

std::string_view NameOf(Level level);  // "normal"

// Both ends are allowed.
struct Range {
  int64_t minimum = 0;
  int64_t maximum = 0;
};
using Words = std::span<const std::string_view>;
using Numbers = std::span<const uint32_t>;
using Bounds = std::variant<std::monostate, Range, Words, Numbers>;

inline constexpr std::monostate kUnbounded;
// The bound of a number that needs none.
inline constexpr int64_t kCountMax = int64_t{1} << 62;
inline constexpr Range kPositive = {1, kCountMax};
inline constexpr Range kCount = {0, kCountMax};
// Milliseconds up to a year: in nanoseconds such a time still fits a number.
inline constexpr Range kTime = {1, int64_t{1000} * 3600 * 24 * 365};

using Field = std::variant<bool SidecarConfig::*, int SidecarConfig::*, uint8_t SidecarConfig::*,
                           uint32_t SidecarConfig::*, uint64_t SidecarConfig::*,
                           std::string SidecarConfig::*, std::vector<std::string> SidecarConfig::*>;

struct Setting {
  std::string_view flag;  // "--run-dir"
  Field field;            // its value in a SidecarConfig{} is the default
  Level level;
  Bounds bounds;
  // One or two plain sentences: the effect, the unit, and when to change it.
  std::string_view help;
  // The meaning of a default that does not speak for itself: "" or 0.
  std::string_view default_means = "";
};

struct Group {
  std::string_view name;
  std::span<const Setting> settings;
};

// The table, in parts.
std::span<const Group> LocalSettings();
std::span<const Group> PeerSettings();
std::span<const Group> CopySettings();
std::span<const Group> RdmaSettings();
std::vector<Group> AllSettings();

std::string EnvironmentName(std::string_view flag);  // GANTRY_RUN_DIR of --run-dir
std::string HelpText(const Setting& setting);        // with the meaning of the default
std::string ValueText(const Setting& setting, const SidecarConfig& config);  // a list: "a,b"
inline std::string DefaultText(const Setting& setting) { return ValueText(setting, {}); }

// A JSON list with an object for each setting, in the order of the table. A default that depends on
// the machine is told by its meaning.
std::string AllSettingsAsJson();

}  // namespace gantry::settings
