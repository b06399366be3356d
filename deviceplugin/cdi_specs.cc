#include "deviceplugin/cdi_specs.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>

#include "lib/base/log.h"

namespace gantry::deviceplugin {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr uintmax_t kSpecBytesMax = 8 << 20;
constexpr int kDepthMax = 32;
constexpr int kNodesMax = 1'000'000;  // aliases make a short text long

// A scalar without quotes may be a number or a truth value; specs have no others.
json ScalarOf(const YAML::Node& node) {
  const std::string& text = node.Scalar();
  if (node.Tag() == "!") return text;  // it had quotes
  if (text == "true" || text == "false") return text == "true";
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc() && end == text.data() + text.size()) return number;
  return text;
}

// Throws what yaml-cpp throws; null below the greatest depth, and when `nodes` have run out.
json JsonOf(const YAML::Node& node, int* nodes, int depth = 0) {
  if (depth > kDepthMax || --*nodes < 0) return nullptr;
  switch (node.Type()) {
    case YAML::NodeType::Scalar:
      return ScalarOf(node);
    case YAML::NodeType::Sequence: {
      json list = json::array();
      for (const YAML::Node& entry : node) list.push_back(JsonOf(entry, nodes, depth + 1));
      return list;
    }
    case YAML::NodeType::Map: {
      json object = json::object();
      for (const auto& entry : node) {
        object[entry.first.Scalar()] = JsonOf(entry.second, nodes, depth + 1);
      }
      return object;
    }
    case YAML::NodeType::Null:
    case YAML::NodeType::Undefined:
      break;
  }
  return nullptr;
}

std::optional<std::string> TextIn(const json& object, const char* key) {
  const auto value = object.find(key);
  if (value == object.end() || !value->is_string()) return std::nullopt;
  return value->get<std::string>();
}

ContainerEdits EditsIn(const json& object) {
  const auto edits = object.find("containerEdits");
  return edits != object.end() && edits->is_object() ? ContainerEdits(*edits) : ContainerEdits();
}

Result<json> ReadSpec(const fs::path& file) {
  std::error_code error;
  const uintmax_t bytes = fs::file_size(file, error);
  if (error) return Fail(ErrorCode::kNotFound, error.message());
  if (bytes > kSpecBytesMax) {
    return Fail(ErrorCode::kBodyTooLarge, "it has " + std::to_string(bytes) + " bytes");
  }
  std::ifstream input(file);
  const std::string text{std::istreambuf_iterator<char>(input), std::istreambuf_iterator<char>()};
  return ParseCdiSpec(text, file.extension() != ".json");
}

std::vector<fs::path> SpecFilesIn(const std::string& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const fs::path extension = entry->path().extension();
    if (extension == ".json" || extension == ".yaml") files.push_back(entry->path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

Result<json> ParseCdiSpec(const std::string& text, bool yaml) {
  json spec;
  if (yaml) {
    try {
      int nodes = kNodesMax;
      spec = JsonOf(YAML::Load(text), &nodes);
      if (nodes < 0) return Fail(ErrorCode::kBodyTooLarge, "it has too many entries");
    } catch (const YAML::Exception& error) {
      return Fail(ErrorCode::kMalformedBody, error.what());
    }
  } else {
    spec = json::parse(text, nullptr, /*allow_exceptions=*/false);
  }
  if (!spec.is_object() || !TextIn(spec, "kind") || !TextIn(spec, "cdiVersion")) {
    return Fail(ErrorCode::kMalformedBody, "it has no kind or no cdiVersion");
  }
  return spec;
}

CdiSpecs CdiSpecs::Read(const std::vector<std::string>& folders) {
  CdiSpecs specs;
  for (const std::string& folder : folders) {
    for (const fs::path& file : SpecFilesIn(folder)) {
      const auto spec = ReadSpec(file);
      if (!spec) {
        log::Warning("a CDI spec is passed over",
                     {{"file", file.string()}, {"error", spec.error()}});
        continue;
      }
      const auto devices = spec->find("devices");
      if (devices == spec->end() || !devices->is_array()) continue;
      const ContainerEdits of_all = EditsIn(*spec);
      for (const json& entry : *devices) {
        const auto name = entry.is_object() ? TextIn(entry, "name") : std::nullopt;
        if (!name) continue;
        CdiDevice device{*TextIn(*spec, "cdiVersion"), EditsIn(entry), of_all};
        device.all.Merge(device.own);
        specs.kinds_[*TextIn(*spec, "kind")].insert_or_assign(*name, std::move(device));
      }
    }
  }
  return specs;
}

const std::map<std::string, CdiDevice>& CdiSpecs::DevicesOf(std::string_view kind) const {
  static const auto* const none = new std::map<std::string, CdiDevice>();
  const auto devices = kinds_.find(kind);
  return devices == kinds_.end() ? *none : devices->second;
}

const CdiDevice* CdiSpecs::Find(std::string_view kind, std::string_view name) const {
  const auto& devices = DevicesOf(kind);
  const auto device = devices.find(std::string(name));
  return device == devices.end() ? nullptr : &device->second;
}

const CdiDevice* CdiSpecs::Find(std::string_view qualified_name) const {
  const size_t equals = qualified_name.find('=');
  if (equals == std::string_view::npos) return nullptr;
  return Find(qualified_name.substr(0, equals), qualified_name.substr(equals + 1));
}

}  // namespace gantry::deviceplugin
