#include "lib/codec/handoff_protocol.h"

#include <algorithm>
#include <initializer_list>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>
#include <variant>

#include "lib/base/fd_passing.h"
#include "lib/base/json_text.h"
#include "lib/base/name.h"
#include "lib/base/random_id.h"

namespace gantry::wire {
namespace {

constexpr size_t kHandoffTokenDigits = 32;
constexpr size_t kGenerationDigits = 16;

using Value = std::variant<std::string, uint64_t, std::vector<std::string>>;
using Fields = std::map<std::string, Value, std::less<>>;

// Reads one object of texts, unsigned integers and lists of texts, and refuses everything else at
// its first byte: nothing is ever nested deeper, whatever the sender wrote.
class FlatObjectReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  Fields TakeFields() { return std::move(fields_); }
  const std::string& problem() const { return problem_; }

  bool null() override { return Refuse("null is no value here"); }
  bool boolean(bool) override { return Refuse("a boolean is no value here"); }
  bool number_integer(number_integer_t) override { return Refuse("a number is negative"); }
  bool number_float(number_float_t, const string_t&) override {
    return Refuse("a number is not an integer of 64 bits");
  }
  bool binary(binary_t&) override { return Refuse("binary data is no value here"); }
  bool number_unsigned(number_unsigned_t value) override {
    return !in_list_ ? Keep(uint64_t{value}) : Refuse("a list holds texts only");
  }
  bool string(string_t& value) override {
    if (!in_list_) return Keep(std::move(value));
    if (list_.size() == kHandoffTokensMax) return Refuse("a list is too long");
    list_.push_back(std::move(value));
    return true;
  }
  bool start_object(size_t) override {
    if (started_) return Refuse("an object is no value here");
    started_ = true;
    return true;
  }
  bool key(string_t& name) override {
    if (fields_.contains(name)) return Refuse("a field is there twice");
    key_ = std::move(name);
    return true;
  }
  bool end_object() override { return true; }
  bool start_array(size_t) override {
    if (!started_ || in_list_) return Refuse("a list is no value here");
    in_list_ = true;
    return true;
  }
  bool end_array() override {
    in_list_ = false;
    return Keep(std::move(list_));
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception&) override {
    return Refuse("it is not JSON at byte " + std::to_string(position));
  }

 private:
  bool Refuse(std::string problem) {
    problem_ = std::move(problem);
    return false;
  }
  bool Keep(Value value) {
    if (!started_) return Refuse("it is not an object");
    fields_.emplace(std::move(key_), std::move(value));
    list_.clear();
    return true;
  }

  Fields fields_;
  std::string key_;
  std::vector<std::string> list_;
  std::string problem_;
  bool started_ = false;
  bool in_list_ = false;
};

tl::unexpected<Error> Malformed(std::string_view problem, std::string field = {}) {
  return Fail(ErrorCode::kMalformedBody, "hand-off message: " + std::string(problem), {},
              std::move(field));
}

Result<Fields> ReadFields(std::string_view text) {
  if (text.size() > kHandoffMessageBytesMax) {
    return Fail(ErrorCode::kBodyTooLarge, "a hand-off message is longer than " +
                                              std::to_string(kHandoffMessageBytesMax) + " bytes");
  }
  // The parser takes a zero byte for the end and would not look behind it.
  if (text.find('\0') != std::string_view::npos) return Malformed("it contains a zero byte");
  FlatObjectReader reader;
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &reader)) {
    return Malformed(reader.problem());
  }
  return reader.TakeFields();
}

Status CheckFields(const Fields& fields, std::initializer_list<std::string_view> known) {
  for (const auto& [name, value] : fields) {
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      return Malformed("there is a field that this message does not have", "/" + name);
    }
  }
  return {};
}

template <typename T>
Result<T> FieldOf(const Fields& fields, std::string_view name) {
  const auto found = fields.find(name);
  const T* value = found == fields.end() ? nullptr : std::get_if<T>(&found->second);
  if (value != nullptr) return *value;
  const char* problem = found == fields.end() ? "a field is missing" : "a field has another type";
  return Malformed(problem, "/" + std::string(name));
}

bool IsToken(std::string_view text, size_t digits) {
  return text.size() == digits && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

Result<std::string> TokenOf(const Fields& fields, std::string_view name) {
  ASSIGN_OR_RETURN(std::string token, FieldOf<std::string>(fields, name));
  if (!IsToken(token, kHandoffTokenDigits)) {
    return Malformed("a token is not 32 lower-case hex digits", "/" + std::string(name));
  }
  return token;
}

Result<std::vector<std::string>> TokensOf(const Fields& fields) {
  ASSIGN_OR_RETURN(auto tokens, FieldOf<std::vector<std::string>>(fields, "tokens"));
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (!IsToken(tokens[i], kHandoffTokenDigits)) {
      return Malformed("a token is not 32 lower-case hex digits", "/tokens/" + std::to_string(i));
    }
  }
  return tokens;
}

Result<HandoffRequest> DecodeAttach(const Fields& fields) {
  HandoffRequest request;
  request.type = HandoffType::kAttach;
  ASSIGN_OR_RETURN(const uint64_t version, FieldOf<uint64_t>(fields, "version"));
  if (version != kHandoffVersion) {
    return Fail(ErrorCode::kVersionMismatch,
                "hand-off version " + std::to_string(version) + " is not spoken here",
                "this side speaks version " + std::to_string(kHandoffVersion), "/version");
  }
  RETURN_IF_ERROR(CheckFields(fields, {"type", "version", "lease_token"}));
  ASSIGN_OR_RETURN(request.lease_token, TokenOf(fields, "lease_token"));
  return request;
}

Result<HandoffRequest> DecodeFds(const Fields& fields) {
  HandoffRequest request;
  request.type = HandoffType::kFds;
  RETURN_IF_ERROR(CheckFields(fields, {"type", "count"}));
  ASSIGN_OR_RETURN(const uint64_t count, FieldOf<uint64_t>(fields, "count"));
  if (count == 0 || count > kFdsPerMessageMax) {
    return Malformed("a message carries 1 to 253 descriptors", "/count");
  }
  request.fd_count = static_cast<size_t>(count);
  return request;
}

Result<HandoffRequest> DecodeRelease(const Fields& fields) {
  HandoffRequest request;
  request.type = HandoffType::kRelease;
  RETURN_IF_ERROR(CheckFields(fields, {"type", "tokens"}));
  ASSIGN_OR_RETURN(request.tokens, TokensOf(fields));
  if (request.tokens.empty()) return Malformed("there is nothing to release", "/tokens");
  return request;
}

Error DecodeError(const Fields& fields) {
  const auto code = FieldOf<std::string>(fields, "code");
  const auto message = FieldOf<std::string>(fields, "message");
  const auto hint = FieldOf<std::string>(fields, "hint");
  const auto known = CheckFields(fields, {"type", "code", "message", "hint"});
  if (!code) return code.error();
  if (!message) return message.error();
  if (!hint) return hint.error();
  if (!known) return known.error();
  return {ErrorCodeByName(*code), *message, *hint};
}

std::string QuotedList(const std::vector<std::string>& texts) {
  std::string list = "[";
  for (const std::string& text : texts) {
    if (list.size() > 1) list += ',';
    list += JsonQuote(text);
  }
  return list + "]";
}

}  // namespace

std::string Encode(const HandoffRequest& request) {
  switch (request.type) {
    case HandoffType::kAttach:
      return R"({"type":"attach","version":)" + std::to_string(kHandoffVersion) +
             R"(,"lease_token":)" + JsonQuote(request.lease_token) + "}";
    case HandoffType::kFds:
      return R"({"type":"fds","count":)" + std::to_string(request.fd_count) + "}";
    case HandoffType::kRelease:
      return R"({"type":"release","tokens":)" + QuotedList(request.tokens) + "}";
    case HandoffType::kPing:
      break;
  }
  return R"({"type":"ping"})";
}

Result<HandoffRequest> DecodeHandoffRequest(std::string_view text) {
  ASSIGN_OR_RETURN(const Fields fields, ReadFields(text));
  ASSIGN_OR_RETURN(const std::string type, FieldOf<std::string>(fields, "type"));
  if (type == "attach") return DecodeAttach(fields);
  if (type == "fds") return DecodeFds(fields);
  if (type == "release") return DecodeRelease(fields);
  if (type != "ping") return Malformed("there is no request of this type", "/type");
  RETURN_IF_ERROR(CheckFields(fields, {"type"}));
  return HandoffRequest{};
}

std::string EncodeReply(const Result<HandoffReply>& reply) {
  if (!reply) {
    return R"({"type":"error","code":)" + JsonQuote(InfoOf(reply.error().code).name) +
           R"(,"message":)" + JsonQuote(reply.error().message) + R"(,"hint":)" +
           JsonQuote(reply.error().hint) + "}";
  }
  std::string text = R"({"type":"ok")";
  if (!reply->workload.empty()) {
    text += R"(,"workload":)" + JsonQuote(reply->workload) + R"(,"generation":)" +
            JsonQuote(HexOf(reply->generation));
  }
  if (!reply->tokens.empty()) text += R"(,"tokens":)" + QuotedList(reply->tokens);
  return text + "}";
}

Result<HandoffReply> DecodeHandoffReply(std::string_view text) {
  ASSIGN_OR_RETURN(const Fields fields, ReadFields(text));
  ASSIGN_OR_RETURN(const std::string type, FieldOf<std::string>(fields, "type"));
  if (type == "error") return Fail(DecodeError(fields));
  if (type != "ok") return Malformed("there is no reply of this type", "/type");
  RETURN_IF_ERROR(CheckFields(fields, {"type", "workload", "generation", "tokens"}));
  HandoffReply reply;
  if (fields.contains("workload") || fields.contains("generation")) {
    ASSIGN_OR_RETURN(reply.workload, FieldOf<std::string>(fields, "workload"));
    RETURN_IF_ERROR(CheckName(reply.workload, "/workload"));
    ASSIGN_OR_RETURN(const std::string generation, FieldOf<std::string>(fields, "generation"));
    if (!IsToken(generation, kGenerationDigits)) {
      return Malformed("a generation is not 16 lower-case hex digits", "/generation");
    }
    ASSIGN_OR_RETURN(reply.generation, ParseHex(generation));
  }
  if (fields.contains("tokens")) {
    ASSIGN_OR_RETURN(reply.tokens, TokensOf(fields));
  }
  return reply;
}

}  // namespace gantry::wire
