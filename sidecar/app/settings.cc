#include "sidecar/app/settings.h"

#include <cctype>
#include <type_traits>

#include "lib/codec/body_writer.h"

namespace gantry::settings {
namespace {

template <typename Value>
std::string TextOf(const Value& value) {
  if constexpr (std::is_same_v<Value, bool>) {
    return value ? "true" : "false";
  } else if constexpr (std::is_same_v<Value, std::string>) {
    return value;
  } else if constexpr (std::is_same_v<Value, std::vector<std::string>>) {
    std::string text;
    for (const std::string& each : value) text += (text.empty() ? "" : ",") + each;
    return text;
  } else {
    return std::to_string(value);
  }
}

template <typename Value>
std::string_view TypeOf(const Value& /*value*/) {
  if constexpr (std::is_same_v<Value, bool>) {
    return "boolean";
  } else if constexpr (std::is_same_v<Value, std::string>) {
    return "string";
  } else if constexpr (std::is_same_v<Value, std::vector<std::string>>) {
    return "strings";
  } else {
    return "integer";
  }
}

void WriteBounds(wire::BodyWriter& out, const Bounds& bounds) {
  if (const auto* const range = std::get_if<Range>(&bounds)) {
    out.Field("minimum", range->minimum).Field("maximum", range->maximum);
  } else if (const auto* const words = std::get_if<Words>(&bounds)) {
    out.Field("values", *words);
  } else if (const auto* const numbers = std::get_if<Numbers>(&bounds)) {
    out.Field("values", *numbers);
  }
}

void WriteSetting(wire::BodyWriter& out, const Group& group, const Setting& setting) {
  const SidecarConfig defaults;
  const auto type = std::visit([&](auto field) { return TypeOf(defaults.*field); }, setting.field);
  out.BeginObject()
      .Field("flag", setting.flag)
      .Field("environment", EnvironmentName(setting.flag))
      .Field("type", type)
      .Field("default", DefaultText(setting))
      .OptionalField("default_means", setting.default_means);
  WriteBounds(out, setting.bounds);
  out.Field("level", NameOf(setting.level))
      .Field("group", group.name)
      .Field("help", setting.help)
      .EndObject();
}

}  // namespace

std::string_view NameOf(Level level) {
  switch (level) {
    case Level::kNormal:
      return "normal";
    case Level::kTuning:
      return "tuning";
    case Level::kExpert:
      return "expert";
  }
  return "";
}

std::vector<Group> AllSettings() {
  std::vector<Group> all;
  for (const auto part : {LocalSettings(), PeerSettings(), CopySettings(), RdmaSettings()}) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

std::string EnvironmentName(std::string_view flag) {
  std::string name = "GANTRY_";
  for (const char c : flag.substr(2)) {
    name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return name;
}

std::string ValueText(const Setting& setting, const SidecarConfig& config) {
  return std::visit([&](auto field) { return TextOf(config.*field); }, setting.field);
}

std::string HelpText(const Setting& setting) {
  std::string text(setting.help);
  if (setting.default_means.empty()) return text;
  const std::string value = DefaultText(setting);
  return text + " " + (value.empty() ? "Default" : value) + ": " +
         std::string(setting.default_means) + ".";
}

std::string AllSettingsAsJson() {
  wire::BodyWriter out(wire::BodyFormat::kJson);
  out.BeginList();
  for (const Group& group : AllSettings()) {
    for (const Setting& setting : group.settings) WriteSetting(out, group, setting);
  }
  out.EndList();
  return out.Take();
}

}  // namespace gantry::settings
