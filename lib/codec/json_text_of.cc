#include "lib/codec/json_text_of.h"

#include "lib/codec/body_parsing.h"
#include "lib/codec/body_writer.h"

namespace gantry::wire {
namespace {

class JsonCopier : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::string Take() { return out_.Take(); }

  bool null() override { return Wrote(out_.Null()); }
  bool boolean(bool value) override { return Wrote(out_.Bool(value)); }
  bool number_integer(number_integer_t value) override { return Wrote(out_.Signed(value)); }
  bool number_unsigned(number_unsigned_t value) override { return Wrote(out_.Unsigned(value)); }
  bool number_float(number_float_t value, const string_t&) override {
    return Wrote(out_.Real(value));
  }
  bool string(string_t& value) override { return Wrote(out_.Text(value)); }
  bool binary(binary_t&) override { return false; }
  bool start_array(size_t) override { return Wrote(out_.BeginList()) && ++depth_ <= kBodyDepthMax; }
  bool end_array() override { return Wrote(out_.EndList()) && depth_-- > 0; }
  bool start_object(size_t) override {
    return Wrote(out_.BeginObject()) && ++depth_ <= kBodyDepthMax;
  }
  bool end_object() override { return Wrote(out_.EndObject()) && depth_-- > 0; }
  bool key(string_t& name) override { return Wrote(out_.AnyKey(name)); }
  bool parse_error(size_t, const std::string&, const nlohmann::json::exception&) override {
    return false;
  }

 private:
  static bool Wrote(const BodyWriter&) { return true; }

  BodyWriter out_{BodyFormat::kJson};
  size_t depth_ = 0;
};

}  // namespace

std::optional<std::string> JsonOf(std::string body) {
  if (!IsCborMap(body)) return body;
  JsonCopier copier;
  if (!ParseBody(body, &copier)) return std::nullopt;
  return copier.Take();
}

}  // namespace gantry::wire
