#include "deviceplugin/cdi/cdi_specs.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <optional>

#include "deviceplugin/cdi/cdi_yaml.h"
#include "lib/base/log.h"

namespace gantry::deviceplugin {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr uintmax_t kSpecBytesMax = 8 << 20;

// The fields of the CDI specification 1.1 (specs-go/config.go). Others stay as they are read.
enum class FieldType { kText, kNumber, kUint32, kTruth };

std::optional<FieldType> TypeOf(std::string_view field) {
  static const auto* const types = new std::map<std::string_view, FieldType>{
      {"cdiVersion", FieldType::kText},
      {"kind", FieldType::kText},
      {"name", FieldType::kText},
      {"annotations", FieldType::kText},
      {"env", FieldType::kText},
      {"path", FieldType::kText},
      {"hostPath", FieldType::kText},
      {"containerPath", FieldType::kText},
      {"type", FieldType::kText},
      {"permissions", FieldType::kText},
      {"options", FieldType::kText},
      {"hookName", FieldType::kText},
      {"args", FieldType::kText},
      {"hostInterfaceName", FieldType::kText},
      {"closID", FieldType::kText},
      {"l3CacheSchema", FieldType::kText},
      {"memBwSchema", FieldType::kText},
      {"schemata", FieldType::kText},
      {"major", FieldType::kNumber},
      {"minor", FieldType::kNumber},
      {"timeout", FieldType::kNumber},
      {"fileMode", FieldType::kUint32},
      {"uid", FieldType::kUint32},
      {"gid", FieldType::kUint32},
      {"additionalGids", FieldType::kUint32},
      {"enableMonitoring", FieldType::kTruth},
  };
  const auto type = types->find(field);
  return type == types->end() ? std::nullopt : std::optional(type->second);
}

Status WrongType(std::string_view field, const json& value, std::string_view wanted) {
  return Fail(ErrorCode::kMalformedBody,
              "its field " + std::string(field) + " is " +
                  value.dump(-1, ' ', false, json::error_handler_t::replace) + ", which is no " +
                  std::string(wanted));
}

Status GiveType(std::string_view field, FieldType type, json& value) {
  if (value.is_null()) return {};
  if (type == FieldType::kText) {
    if (value.is_number() || value.is_boolean()) value = TextOfScalar(value);
    return value.is_string() ? Status() : WrongType(field, value, "text");
  }
  if (type == FieldType::kTruth) {
    return value.is_boolean() ? Status() : WrongType(field, value, "truth value");
  }
  constexpr double kExact = 1LL << 53;
  if (value.is_number_float() && std::abs(value.get<double>()) < kExact &&
      std::trunc(value.get<double>()) == value.get<double>()) {
    value = static_cast<int64_t>(value.get<double>());
  }
  if (!value.is_number_integer()) return WrongType(field, value, "whole number");
  if (type == FieldType::kNumber) return {};
  const bool fits = value >= 0 && value <= std::numeric_limits<uint32_t>::max();
  return fits ? Status() : WrongType(field, value, "number from 0 to 4294967295");
}

// Each field as a runtime takes it: a name that looks like a number is text, 1e3 a whole number.
// A runtime reads nothing of a file with another type, and what is copied from it would be refused.
Status GiveTypes(std::string_view field, std::optional<FieldType> type, json& value) {
  if (value.is_object()) {
    for (auto& [key, entry] : value.items()) {
      RETURN_IF_ERROR(GiveTypes(key, type ? type : TypeOf(key), entry));
    }
  } else if (value.is_array()) {
    for (json& entry : value) RETURN_IF_ERROR(GiveTypes(field, type, entry));
  } else if (type) {
    return GiveType(field, *type, value);
  }
  return {};
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
  // Runtimes read both as YAML, which takes commas and comments that JSON does not.
  json spec = yaml ? json(json::value_t::discarded)
                   : json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (spec.is_discarded()) {
    ASSIGN_OR_RETURN(spec, JsonOfYaml(text));
  }
  RETURN_IF_ERROR(GiveTypes({}, {}, spec));
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
