#include "client/session/json_text_of.h"

#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include "client/session/answer_parsing.h"
#include "lib/base/json_text.h"

namespace gantry::client {
namespace {

class JsonCopier : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::string Take() { return std::move(out_); }

  bool null() override { return Value("null"); }
  bool boolean(bool value) override { return Value(value ? "true" : "false"); }
  bool number_integer(number_integer_t value) override { return Number(value); }
  bool number_unsigned(number_unsigned_t value) override { return Number(value); }
  bool number_float(number_float_t value, const string_t&) override {
    return std::isfinite(value) ? Number(value) : null();
  }
  bool string(string_t& value) override { return Value(JsonQuote(value)); }
  bool binary(binary_t&) override { return false; }
  bool start_array(size_t) override { return Open('['); }
  bool end_array() override { return Close(']'); }
  bool start_object(size_t) override { return Open('{'); }
  bool end_object() override { return Close('}'); }
  bool key(string_t& name) override {
    Value(JsonQuote(name));
    out_ += ':';
    separate_ = false;
    return true;
  }
  bool parse_error(size_t, const std::string&, const nlohmann::json::exception&) override {
    return false;
  }

 private:
  static constexpr size_t kDigitsMax = 32;

  bool Value(std::string_view text) {
    if (separate_) out_ += ',';
    out_ += text;
    return separate_ = true;
  }
  template <typename NumberType>
  bool Number(NumberType value) {
    std::array<char, kDigitsMax> text;
    const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
    return Value({text.data(), static_cast<size_t>(end - text.data())});
  }
  bool Open(char bracket) {
    Value({&bracket, 1});
    separate_ = false;
    return ++depth_ <= kAnswerDepthMax;
  }
  bool Close(char bracket) {
    out_ += bracket;
    --depth_;
    return separate_ = true;
  }

  std::string out_;
  bool separate_ = false;  // a comma comes before the next value
  size_t depth_ = 0;
};

}  // namespace

std::optional<std::string> JsonOf(std::string body) {
  if (!IsCborMap(body)) return body;
  JsonCopier copier;
  if (!ParseAnswer(body, &copier)) return std::nullopt;
  return copier.Take();
}

}  // namespace gantry::client
