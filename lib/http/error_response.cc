#include "lib/http/error_response.h"

#include "lib/base/result.h"

namespace gantry::http {
namespace {

// Refusals of HTTP itself; those that an ErrorCode fits take name, title and status from there.
struct RefusalInfo {
  std::string_view code;
  int status;
  std::string_view title;
  std::string_view detail;
  std::string_view hint;
};

// The limits of every server here: none has others for its heads.
const std::string kTargetTooLong =
    "path and query have more than " + std::to_string(kTargetBytesMax) + " bytes";
const std::string kHeadTooLarge = "the head of the request has more than " +
                                  std::to_string(kHeadBytesMax) + " bytes, or more than " +
                                  std::to_string(kHeadersMax) + " headers";

RefusalInfo InfoOf(Refusal refusal) {
  switch (refusal) {
    case Refusal::kMalformed:
      return {"malformed_request", 400, "This is no HTTP/1.1 request",
              "the request line or a header cannot be read", ""};
    case Refusal::kTimeout:
      return {"request_timeout", 408, "The request did not come to its end",
              "the request was begun and not finished in time", "send it again, in one go"};
    case Refusal::kLengthRequired:
      return {"length_required", 411, "A body needs a Content-Length",
              "Transfer-Encoding is not accepted", "send the body with Content-Length"};
    case Refusal::kBodyTooLarge: {
      const ErrorCodeInfo& info = InfoOf(ErrorCode::kBodyTooLarge);
      return {info.name, info.http_status, info.title, "the body has more bytes than the limit",
              "split the request, or send it as application/cbor; REST's limit is in GET /v1/info"};
    }
    case Refusal::kTargetTooLong:
      return {"target_too_long", 414, "The path is too long", kTargetTooLong, ""};
    case Refusal::kEncoding: {
      const ErrorCodeInfo& info = InfoOf(ErrorCode::kUnsupportedMedia);
      return {info.name, info.http_status, info.title, "Content-Encoding is not accepted",
              "send the body as it is"};
    }
    case Refusal::kHeadTooLarge:
      return {"head_too_large", 431, "The headers are too large", kHeadTooLarge, ""};
    case Refusal::kVersion:
      break;
  }
  return {"http_version", 505, "The HTTP version is not supported",
          "only HTTP/1.1 and HTTP/1.0 are spoken here", ""};
}

void WriteProblem(std::string_view code, int status, std::string_view title,
                  std::string_view detail, std::string_view field, std::string_view hint,
                  wire::BodyWriter* writer,
                  const std::function<void(wire::BodyWriter*)>& more = nullptr) {
  writer->BeginObject()
      .Field("type", "urn:gantry:error:" + std::string(code))
      .Field("title", title)
      .Field("status", status)
      .Field("code", code)
      .Field("detail", detail)
      .OptionalField("field", field)
      .OptionalField("hint", hint);
  if (more) more(writer);
  writer->EndObject();
}

Response Problem(int status, wire::BodyWriter writer) {
  Response response;
  response.status = status;
  response.content_type = kProblemType;
  response.body = writer.Take();
  return response;
}

std::string_view ReasonOf(int status) {
  switch (status) {
    case 400:
      return "Bad Request";
    case 408:
      return "Request Timeout";
    case 411:
      return "Length Required";
    case 413:
      return "Payload Too Large";
    case 414:
      return "URI Too Long";
    case 415:
      return "Unsupported Media Type";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return "Error";
  }
}

}  // namespace

void WriteProblem(const Error& error, wire::BodyWriter* writer) {
  const ErrorCodeInfo& info = InfoOf(error.code);
  WriteProblem(info.name, info.http_status, info.title, error.message, error.field, error.hint,
               writer);
}

Response ErrorResponse(const Error& error) { return ErrorResponse(error, nullptr); }

Response ErrorResponse(const Error& error, const std::function<void(wire::BodyWriter*)>& write) {
  const ErrorCodeInfo& info = InfoOf(error.code);
  wire::BodyWriter writer(wire::BodyFormat::kJson);
  WriteProblem(info.name, info.http_status, info.title, error.message, error.field, error.hint,
               &writer, write);
  return Problem(info.http_status, std::move(writer));
}

Response RefusalResponse(Refusal refusal) {
  const RefusalInfo info = InfoOf(refusal);
  wire::BodyWriter writer(wire::BodyFormat::kJson);
  WriteProblem(info.code, info.status, info.title, info.detail, "", info.hint, &writer);
  return Problem(info.status, std::move(writer));
}

std::string LastResponse(const Response& response) {
  std::string bytes = "HTTP/1.1 " + std::to_string(response.status) + " ";
  bytes += ReasonOf(response.status);
  bytes += "\r\nContent-Type: " + response.content_type;
  bytes += "\r\nContent-Length: " + std::to_string(response.body.size());
  bytes += "\r\nConnection: close\r\n\r\n";
  return bytes + response.body;
}

}  // namespace gantry::http
