#include "client/answer_fields.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "client/answer_parsing.h"

namespace gantry::client {

// Walks through the answer and knows at every value where it is.
class FieldCollector : public nlohmann::json_sax<nlohmann::json> {
 public:
  FieldCollector(std::span<const std::string_view> keys, AnswerFields* fields)
      : keys_(keys), fields_(fields) {}

  bool null() override { return Other(); }
  bool boolean(bool value) override { return Keep(value); }
  bool number_integer(number_integer_t) override { return Other(); }
  bool number_float(number_float_t, const string_t&) override { return Other(); }
  bool binary(binary_t&) override { return Other(); }
  bool number_unsigned(number_unsigned_t value) override { return Keep(uint64_t{value}); }
  bool string(string_t& value) override { return Keep(std::move(value)); }

  bool start_object(size_t) override { return Enter(false); }
  bool start_array(size_t) override { return Enter(true); }
  bool end_object() override { return Leave(); }
  bool end_array() override { return Leave(); }
  bool key(string_t& name) override {
    levels_.back().key = std::move(name);
    return true;
  }
  bool parse_error(size_t, const std::string&, const nlohmann::json::exception&) override {
    return false;
  }

 private:
  struct Level {
    bool is_array = false;
    size_t index = 0;
    std::string key;
  };

  bool Enter(bool is_array) {
    if (levels_.empty() ? is_array : levels_.size() == kAnswerDepthMax) return false;
    levels_.push_back({is_array, 0, {}});
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
  template <typename Value>
  bool Keep(Value value) {
    if (levels_.empty()) return false;
    const Level& last = levels_.back();
    if (!last.is_array && std::find(keys_.begin(), keys_.end(), last.key) != keys_.end()) {
      fields_->values_.insert_or_assign(PathHere(), std::move(value));
    }
    return Other();
  }
  std::string PathHere() const {
    std::string path;
    for (const Level& level : levels_) {
      if (!path.empty()) path += '/';
      path += level.is_array ? std::to_string(level.index) : level.key;
    }
    return path;
  }

  const std::span<const std::string_view> keys_;
  AnswerFields* const fields_;
  std::vector<Level> levels_;
};

std::optional<AnswerFields> AnswerFields::Read(std::string_view body,
                                               std::span<const std::string_view> keys) {
  AnswerFields fields;
  FieldCollector collector(keys, &fields);
  if (!ParseAnswer(body, &collector)) return std::nullopt;
  return fields;
}

std::string AnswerFields::Text(std::string_view path) const {
  const auto found = values_.find(path);
  if (found == values_.end() || !std::holds_alternative<std::string>(found->second)) return {};
  return std::get<std::string>(found->second);
}

uint64_t AnswerFields::Number(std::string_view path) const {
  const auto found = values_.find(path);
  if (found == values_.end() || !std::holds_alternative<uint64_t>(found->second)) return 0;
  return std::get<uint64_t>(found->second);
}

bool AnswerFields::Flag(std::string_view path) const {
  const auto found = values_.find(path);
  return found != values_.end() && std::holds_alternative<bool>(found->second) &&
         std::get<bool>(found->second);
}

}  // namespace gantry::client
