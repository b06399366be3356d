#include "deviceplugin/cdi/cdi_yaml.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <string_view>

namespace gantry::deviceplugin {
namespace {

using nlohmann::json;

constexpr int kDepthMax = 32;
constexpr int kNodesMax = 1'000'000;  // aliases make a short text long

constexpr std::array<std::string_view, 11> kTrue = {"y",    "Y",    "yes", "Yes", "YES", "true",
                                                    "True", "TRUE", "on",  "On",  "ON"};
constexpr std::array<std::string_view, 11> kFalse = {"n",     "N",     "no",  "No",  "NO", "false",
                                                     "False", "FALSE", "off", "Off", "OFF"};
constexpr std::array<std::string_view, 5> kNull = {"", "~", "null", "Null", "NULL"};
constexpr std::array<std::string_view, 12> kNotFinite = {".nan",  ".NaN",  ".NAN",  ".inf",
                                                         ".Inf",  ".INF",  "+.inf", "+.Inf",
                                                         "+.INF", "-.inf", "-.Inf", "-.INF"};

constexpr std::string_view kYamlTag = "tag:yaml.org,2002:";

template <typename List>
bool Has(const List& list, std::string_view text) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

[[noreturn]] void Refuse(const YAML::Node& node, const std::string& why) {
  throw YAML::RepresentationException(node.Mark(), why);
}

template <typename Number>
std::optional<Number> WholeNumber(std::string_view digits, int base) {
  Number number = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), number, base);
  if (digits.empty() || error != std::errc() || end != digits.data() + digits.size()) {
    return std::nullopt;
  }
  return number;
}

// The base that a number's prefix stands for, which is taken off. A zero in front means octal.
int TakeBase(std::string& digits) {
  if (digits.size() < 2 || digits[0] != '0') return 10;
  const char letter = digits[1];
  const int base = letter == 'x' || letter == 'X' ? 16 : letter == 'b' || letter == 'B' ? 2 : 8;
  const bool has_letter = base != 8 || letter == 'o' || letter == 'O';
  digits.erase(0, has_letter ? 2 : 1);
  return base;
}

bool UnderscoresAreBetweenDigits(std::string_view text) {
  const auto digit = [&](size_t at) {
    return at < text.size() && text[at] >= '0' && text[at] <= '9';
  };
  for (size_t at = text.find('_'); at != std::string_view::npos; at = text.find('_', at + 1)) {
    if (at == 0 || !digit(at - 1) || !digit(at + 1)) return false;
  }
  return true;
}

// `text` begins with a digit, a sign or a dot. Numbers may have underscores. Numbers of base 60
// (1:30) and dates are text.
std::optional<json> NumberOf(std::string_view text) {
  std::string plain(text);
  if (text.front() != '.' || UnderscoresAreBetweenDigits(text)) std::erase(plain, '_');
  const bool has_sign = !plain.empty() && (plain[0] == '+' || plain[0] == '-');
  const bool negative = has_sign && plain[0] == '-';
  const std::string magnitude = plain.substr(has_sign ? 1 : 0);
  if (magnitude.empty() || magnitude[0] == '-' || magnitude[0] == '+') return std::nullopt;
  std::string digits = magnitude;
  const int base = TakeBase(digits);
  if (digits.empty() || digits[0] != '-') {
    if (const auto number = WholeNumber<int64_t>((negative ? "-" : "") + digits, base)) {
      return json(*number);
    }
    if (const auto number = WholeNumber<uint64_t>(digits, base); number && !has_sign) {
      return json(*number);
    }
  }
  // Else "inf" and "nan" are numbers to from_chars.
  if (magnitude[0] != '.' && (magnitude[0] < '0' || magnitude[0] > '9')) return std::nullopt;
  double number = 0;
  const char* const last = magnitude.data() + magnitude.size();
  const auto [end, error] = std::from_chars(magnitude.data(), last, number);
  if (error != std::errc() || end != last) return std::nullopt;
  return json(negative ? -number : number);
}

// The value of a scalar without quotes and without a tag.
json PlainScalar(const YAML::Node& node) {
  const std::string& text = node.Scalar();
  if (Has(kNull, text)) return nullptr;
  if (Has(kTrue, text)) return true;
  if (Has(kFalse, text)) return false;
  if (Has(kNotFinite, text)) Refuse(node, "JSON has no number " + text);
  constexpr std::string_view kStartsOfNumbers = "+-.0123456789";
  if (kStartsOfNumbers.find(text.front()) == std::string_view::npos) return text;
  return NumberOf(text).value_or(json(text));
}

json ScalarOf(const YAML::Node& node) {
  const std::string& tag = node.Tag();
  if (tag.empty() || tag == "?") return PlainScalar(node);
  if (!tag.starts_with(kYamlTag)) return node.Scalar();  // quotes ("!"), or an application's tag
  const std::string_view type = std::string_view(tag).substr(kYamlTag.size());
  if (type == "binary") Refuse(node, "!!binary is not read");
  const bool known = type == "int" || type == "float" || type == "bool" || type == "null";
  if (!known) return node.Scalar();
  const json value = PlainScalar(node);
  const bool matches =
      (type == "int" && value.is_number_integer()) || (type == "float" && value.is_number()) ||
      (type == "bool" && value.is_boolean()) || (type == "null" && value.is_null());
  if (!matches) Refuse(node, "'" + node.Scalar() + "' is no !!" + std::string(type));
  return value;
}

class Converter {
 public:
  bool has_too_many() const { return nodes_left_ < 0; }

  // Throws what yaml-cpp throws; null below the greatest depth, and when too many are there.
  json Convert(const YAML::Node& node, int depth = 0) {
    if (depth > kDepthMax || --nodes_left_ < 0) return nullptr;
    switch (node.Type()) {
      case YAML::NodeType::Scalar:
        return ScalarOf(node);
      case YAML::NodeType::Sequence: {
        json list = json::array();
        for (const YAML::Node& entry : node) list.push_back(Convert(entry, depth + 1));
        return list;
      }
      case YAML::NodeType::Map: {
        json object = json::object();
        AddEntries(node, depth, object);
        return object;
      }
      case YAML::NodeType::Null:
      case YAML::NodeType::Undefined:
        break;
    }
    return nullptr;
  }

 private:
  void AddEntries(const YAML::Node& map, int depth, json& object) {
    for (const auto& entry : map) {
      if (IsMerge(entry.first)) {
        Merge(entry.second, depth + 1, object);
        continue;
      }
      const std::string key = KeyOf(entry.first);
      if (object.contains(key)) Refuse(entry.first, "the key '" + key + "' is there twice");
      object[key] = Convert(entry.second, depth + 1);
    }
  }

  // "<<" takes in the entries of another map, or of each map of a list.
  void Merge(const YAML::Node& from, int depth, json& object) {
    if (depth > kDepthMax || --nodes_left_ < 0) return;
    if (from.IsMap()) return AddEntries(from, depth, object);
    if (!from.IsSequence()) Refuse(from, "<< takes a map or a list of maps");
    for (const YAML::Node& each : from) {
      if (!each.IsMap()) Refuse(each, "<< takes a map or a list of maps");
      AddEntries(each, depth, object);
    }
  }

  static bool IsMerge(const YAML::Node& key) {
    return key.IsScalar() && key.Scalar() == "<<" && key.Tag() != "!";
  }

  // Numbers and truth values become texts: "on" is the key "true".
  static std::string KeyOf(const YAML::Node& key) {
    const json value = key.IsScalar() ? ScalarOf(key) : json();
    if (value.is_null()) Refuse(key, "a key is neither a text nor a number nor a truth value");
    return value.is_string() ? value.get<std::string>() : TextOfScalar(value);
  }

  int nodes_left_ = kNodesMax;
};

}  // namespace

Result<json> JsonOfYaml(const std::string& text) {
  try {
    Converter converter;
    json value = converter.Convert(YAML::Load(text));
    if (converter.has_too_many()) {
      return Fail(ErrorCode::kBodyTooLarge, "it has too many entries");
    }
    return value;
  } catch (const YAML::Exception& error) {
    return Fail(ErrorCode::kMalformedBody, error.what());
  }
}

std::string TextOfScalar(const json& value) {
  if (!value.is_number_float()) return value.dump();
  // Go has %g with six digits at which the exponent begins, and as many digits as a float needs.
  std::array<char, 64> digits = {};
  const auto number = static_cast<float>(value.get<double>());
  auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number,
                           std::chars_format::scientific)
                 .ptr;
  const std::string text(digits.data(), end);
  const int exponent = std::atoi(text.c_str() + text.find('e') + 1);
  if (exponent < -4 || exponent >= 6) return text;
  end =
      std::to_chars(digits.data(), digits.data() + digits.size(), number, std::chars_format::fixed)
          .ptr;
  return {digits.data(), end};
}

}  // namespace gantry::deviceplugin
