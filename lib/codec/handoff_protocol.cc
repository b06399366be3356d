#include "lib/codec/handoff_protocol.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "lib/base/fd_passing.h"
#include "lib/base/random_id.h"
#include "lib/codec/body_fields.h"
#include "lib/codec/body_parsing.h"
#include "lib/codec/body_writer.h"
#include "lib/codec/schema_reader.h"

namespace gantry::wire {
namespace {

constexpr size_t kHandoffTokenDigits = 32;
constexpr size_t kGenerationDigits = 16;

// A problem of a field: its reader says which message it is in.
tl::unexpected<Error> Wrong(std::string problem) {
  return Fail(ErrorCode::kMalformedBody, std::move(problem));
}

tl::unexpected<Error> Malformed(const std::string& problem, std::string field = {}) {
  return Fail(ErrorCode::kMalformedBody, "hand-off message: " + problem, {}, std::move(field));
}

tl::unexpected<Error> VersionMismatch(uint64_t version) {
  return Fail(ErrorCode::kVersionMismatch,
              "hand-off version " + std::to_string(version) + " is not spoken here",
              "this side speaks version " + std::to_string(kHandoffVersion), "/version");
}

Status CheckHex(std::string_view text, size_t digits) {
  const bool is_hex = text.size() == digits && std::all_of(text.begin(), text.end(), [](char c) {
                        return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
                      });
  if (is_hex) return {};
  return Wrong("it is not " + std::to_string(digits) + " lower-case hex digits");
}

// ReadKind has read it.
constexpr Field TypeField() {
  return ReadTextField("type", FieldKind::kText, kRequired,
                       [](void*, std::string&&) -> Status { return {}; });
}

template <typename Message>
constexpr Field TokensField(Need need) {
  return ReadTextField("tokens", FieldKind::kTexts, need,
                       [](void* object, std::string&& token) -> Status {
                         auto& tokens = static_cast<Message*>(object)->tokens;
                         RETURN_IF_ERROR(CheckHex(token, kHandoffTokenDigits));
                         if (tokens.size() == kHandoffTokensMax) return Wrong("too many tokens");
                         tokens.push_back(std::move(token));
                         return {};
                       });
}

constexpr Field VersionField() {
  Field field{"version", FieldKind::kNumber, kRequired, kHandoffVersion, kHandoffVersion};
  field.number = [](void*, int64_t) {};
  return field;
}

constexpr Field kAttachFields[] = {
    TypeField(),
    VersionField(),
    ReadTextField("lease_token", FieldKind::kText, kRequired,
                  [](void* object, std::string&& token) -> Status {
                    RETURN_IF_ERROR(CheckHex(token, kHandoffTokenDigits));
                    static_cast<HandoffRequest*>(object)->lease_token = std::move(token);
                    return {};
                  }),
};
constexpr Field kFdsFields[] = {
    TypeField(),
    NumberField<&HandoffRequest::fd_count>("count", kRequired, 1, kFdsPerMessageMax),
};
constexpr Field kReleaseFields[] = {TypeField(), NotEmpty(TokensField<HandoffRequest>(kRequired))};
constexpr Field kPingFields[] = {TypeField()};

struct Reply {
  std::string workload;
  std::optional<uint64_t> generation;
  std::vector<std::string> tokens;
};
constexpr Field kReplyFields[] = {
    TypeField(),
    NameField<&Reply::workload>("workload", kOptional),
    ReadTextField("generation", FieldKind::kText, kOptional,
                  [](void* object, std::string&& text) -> Status {
                    RETURN_IF_ERROR(CheckHex(text, kGenerationDigits));
                    ASSIGN_OR_RETURN(static_cast<Reply*>(object)->generation, ParseHex(text));
                    return {};
                  }),
    TokensField<Reply>(kOptional),
};

struct Refusal {
  std::string code, message, hint;
};
constexpr Field kRefusalFields[] = {
    TypeField(),
    TextField<&Refusal::code>("code", kRequired),
    TextField<&Refusal::message>("message", kRequired),
    TextField<&Refusal::hint>("hint", kRequired),
};

// Reads the fields that say how the rest of a message is to be read.
Result<BodyFields> ReadKind(std::string_view text) {
  static constexpr std::array<std::string_view, 2> kKeys = {"type", "version"};
  if (text.size() > kHandoffMessageBytesMax) {
    return Fail(ErrorCode::kBodyTooLarge, "a hand-off message is longer than " +
                                              std::to_string(kHandoffMessageBytesMax) + " bytes");
  }
  // The parser takes a zero byte for the end and would not look behind it.
  if (text.find('\0') != std::string_view::npos) return Malformed("it contains a zero byte");
  if (!IsCborMap(text)) {
    if (auto fields = BodyFields::Read(text, kKeys)) return *std::move(fields);
  }
  return Malformed("it is no JSON object");
}

Status ReadMessage(std::string_view text, std::span<const Field> fields, void* message) {
  Status read = ReadBody(BodyFormat::kJson, text, Schema{fields}, message);
  if (read) return read;
  Error error = std::move(read).error();
  error.hint.clear();  // it is about the REST interface
  if (error.code == ErrorCode::kInvalidArgument) {
    error.code =
        error.field == "/version" ? ErrorCode::kVersionMismatch : ErrorCode::kMalformedBody;
  }
  return Fail(std::move(error).WithContext("hand-off message"));
}

}  // namespace

std::string Encode(const HandoffRequest& request) {
  BodyWriter out(BodyFormat::kJson);
  out.BeginObject().Key("type");
  switch (request.type) {
    case HandoffType::kAttach:
      out.Text("attach").Field("version", kHandoffVersion);
      out.Field("lease_token", request.lease_token);
      break;
    case HandoffType::kFds:
      out.Text("fds").Field("count", request.fd_count);
      break;
    case HandoffType::kRelease:
      out.Text("release").Field("tokens", request.tokens);
      break;
    case HandoffType::kPing:
      out.Text("ping");
  }
  return out.EndObject().Take();
}

Result<HandoffRequest> DecodeHandoffRequest(std::string_view text) {
  ASSIGN_OR_RETURN(const BodyFields kind, ReadKind(text));
  const std::string type = kind.Text("type");
  HandoffRequest request;
  std::span<const Field> fields = kPingFields;
  if (type == "attach") {
    const uint64_t version = kind.Number("version");  // 0: it may be missing
    if (version != kHandoffVersion && version != 0) return VersionMismatch(version);
    request.type = HandoffType::kAttach;
    fields = kAttachFields;
  } else if (type == "fds") {
    request.type = HandoffType::kFds;
    fields = kFdsFields;
  } else if (type == "release") {
    request.type = HandoffType::kRelease;
    fields = kReleaseFields;
  } else if (type != "ping") {
    return Malformed("there is no request of this type", "/type");
  }
  RETURN_IF_ERROR(ReadMessage(text, fields, &request));
  return request;
}

std::string EncodeReply(const Result<HandoffReply>& reply) {
  BodyWriter out(BodyFormat::kJson);
  out.BeginObject().Field("type", reply ? "ok" : "error");
  if (!reply) {
    out.Field("code", InfoOf(reply.error().code).name).Field("message", reply.error().message);
    return out.Field("hint", reply.error().hint).EndObject().Take();
  }
  if (!reply->workload.empty()) {
    out.Field("workload", reply->workload).Field("generation", HexOf(reply->generation));
  }
  if (!reply->tokens.empty()) out.Field("tokens", reply->tokens);
  return out.EndObject().Take();
}

Result<HandoffReply> DecodeHandoffReply(std::string_view text) {
  ASSIGN_OR_RETURN(const BodyFields kind, ReadKind(text));
  const std::string type = kind.Text("type");
  if (type == "error") {
    Refusal refusal;
    RETURN_IF_ERROR(ReadMessage(text, kRefusalFields, &refusal));
    return Fail(ErrorCodeByName(refusal.code), refusal.message, refusal.hint);
  }
  if (type != "ok") return Malformed("there is no reply of this type", "/type");
  Reply reply;
  RETURN_IF_ERROR(ReadMessage(text, kReplyFields, &reply));
  if (reply.workload.empty() == reply.generation.has_value()) {
    return Malformed("a workload and its generation are there together", "/workload");
  }
  return HandoffReply{std::move(reply.workload), reply.generation.value_or(0),
                      std::move(reply.tokens)};
}

}  // namespace gantry::wire
