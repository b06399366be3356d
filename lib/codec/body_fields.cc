#include "lib/codec/body_fields.h"

#include <algorithm>
#include <utility>

#include "lib/codec/body_parsing.h"

namespace gantry::wire {
namespace {

constexpr size_t kFew = 64;         // are looked through faster than they are sorted
constexpr size_t kPathMax = 1'024;  // no field that anybody asks for has a longer one

}  // namespace

// Walks through the body and knows at every value where it is.
class FieldCollector : public nlohmann::json_sax<nlohmann::json> {
 public:
  FieldCollector(std::span<const std::string_view> keys, BodyFields* fields)
      : keys_(keys), fields_(*fields) {}

  bool null() override { return Other(); }
  bool boolean(bool value) override { return Keep(BodyFields::Kind::kFlag, value ? 1 : 0); }
  bool number_integer(number_integer_t) override { return Other(); }
  bool number_float(number_float_t, const string_t&) override { return Other(); }
  bool binary(binary_t&) override { return Other(); }
  bool number_unsigned(number_unsigned_t value) override {
    return Keep(BodyFields::Kind::kNumber, value);
  }
  bool string(string_t& value) override {
    return Keep(BodyFields::Kind::kText, value.size(), value);
  }

  bool start_object(size_t) override { return Enter(false); }
  bool start_array(size_t) override { return Enter(true); }
  bool end_object() override { return Leave(); }
  bool end_array() override { return Leave(); }
  bool key(string_t& name) override {
    path_.resize(levels_.back().prefix);
    path_ += name;
    return true;
  }
  bool parse_error(size_t, const std::string&, const nlohmann::json::exception&) override {
    return false;
  }

 private:
  struct Level {
    bool is_array = false;
    size_t index = 0;
    size_t prefix = 0;  // of the path, up to the names of what is in it
  };

  bool Enter(bool is_array) {
    if (levels_.empty() ? is_array : levels_.size() == kBodyDepthMax) return false;
    NameElement();
    if (!levels_.empty()) path_ += '/';
    levels_.push_back({is_array, 0, path_.size()});
    return true;
  }
  bool Leave() {
    levels_.pop_back();
    return Other();
  }
  // A value ended here: the next one of an array has the next index.
  bool Other() {
    if (levels_.empty()) return true;
    if (levels_.back().is_array) ++levels_.back().index;
    return true;
  }
  bool Keep(BodyFields::Kind kind, uint64_t number, std::string_view text = {}) {
    if (levels_.empty()) return false;
    if (!levels_.back().is_array) {
      const auto name = std::string_view(path_).substr(levels_.back().prefix);
      if (path_.size() <= kPathMax && std::find(keys_.begin(), keys_.end(), name) != keys_.end()) {
        fields_.fields_.push_back(
            {fields_.characters_.size(), static_cast<uint32_t>(path_.size()), kind, number});
        fields_.characters_.append(path_).append(text);
      }
    }
    return Other();
  }
  void NameElement() {
    if (levels_.empty() || !levels_.back().is_array) return;
    path_.resize(levels_.back().prefix);
    path_ += std::to_string(levels_.back().index);
  }

  const std::span<const std::string_view> keys_;
  BodyFields& fields_;
  std::vector<Level> levels_;
  std::string path_;  // of the value that comes next
};

std::optional<BodyFields> BodyFields::Read(std::string_view body,
                                           std::span<const std::string_view> keys) {
  BodyFields fields;
  FieldCollector collector(keys, &fields);
  if (!ParseBody(body, &collector)) return std::nullopt;
  if (fields.fields_.size() > kFew) {
    std::sort(fields.fields_.begin(), fields.fields_.end(), [&](const Field& a, const Field& b) {
      const int order = fields.PathOf(a).compare(fields.PathOf(b));
      return order != 0 ? order < 0 : a.start < b.start;
    });
  }
  return fields;
}

const BodyFields::Field* BodyFields::Find(std::string_view path, Kind kind) const {
  auto end = fields_.end();
  if (fields_.size() > kFew) {
    end = std::upper_bound(
        fields_.begin(), end, path,
        [&](std::string_view wanted, const Field& field) { return wanted < PathOf(field); });
    if (end != fields_.begin() && PathOf(*std::prev(end)) != path) return nullptr;
  }
  while (end != fields_.begin()) {
    const Field& field = *--end;
    if (PathOf(field) == path) return field.kind == kind ? &field : nullptr;
  }
  return nullptr;
}

std::string BodyFields::Text(std::string_view path) const {
  const Field* const field = Find(path, Kind::kText);
  if (field == nullptr) return {};
  return characters_.substr(field->start + field->path_size, field->number);
}

uint64_t BodyFields::Number(std::string_view path) const {
  const Field* const field = Find(path, Kind::kNumber);
  return field == nullptr ? 0 : field->number;
}

bool BodyFields::Flag(std::string_view path) const {
  const Field* const field = Find(path, Kind::kFlag);
  return field != nullptr && field->number != 0;
}

}  // namespace gantry::wire
