#include "sidecar/api/request_reading.h"

#include <algorithm>
#include <charconv>

namespace gantry::api {
namespace {

constexpr std::string_view kJson = "application/json";
constexpr std::string_view kCbor = "application/cbor";

bool IsMediaType(std::string_view header, std::string_view type) {
  if (header == type) return true;
  std::string_view name = header.substr(0, header.find(';'));
  while (!name.empty() && name.back() == ' ') name.remove_suffix(1);
  return name.size() == type.size() &&
         std::equal(name.begin(), name.end(), type.begin(), [](char a, char b) {
           return (a >= 'A' && a <= 'Z' ? static_cast<char>(a + 32) : a) == b;
         });
}

std::string PointerTo(std::string_view name) { return "?" + std::string(name); }

}  // namespace

Result<wire::BodyFormat> BodyFormatOf(const http::Request& request) {
  if (IsMediaType(request.content_type, kJson)) return wire::BodyFormat::kJson;
  if (IsMediaType(request.content_type, kCbor)) return wire::BodyFormat::kCbor;
  if (request.body.empty() && request.content_type.empty()) return wire::BodyFormat::kJson;
  return Fail(ErrorCode::kUnsupportedMedia, "the body is neither JSON nor CBOR by its Content-Type",
              "send Content-Type: application/json or application/cbor");
}

wire::BodyFormat ResponseFormatOf(const http::Request& request) {
  return request.accept.find(kCbor) != std::string_view::npos ? wire::BodyFormat::kCbor
                                                              : wire::BodyFormat::kJson;
}

std::string QueryText(const http::Request& request, std::string_view name) {
  const auto found = request.query->find(std::string(name));
  return found == request.query->end() ? std::string() : found->second;
}

Result<std::optional<uint64_t>> QueryNumber(const http::Request& request, std::string_view name) {
  const auto found = request.query->find(std::string(name));
  if (found == request.query->end()) return std::optional<uint64_t>();
  const std::string& text = found->second;
  uint64_t value = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  if (read.ec != std::errc() || read.ptr != text.data() + text.size() ||
      value > static_cast<uint64_t>(wire::kNumberMax)) {
    return Fail(ErrorCode::kInvalidArgument,
                "the query parameter " + std::string(name) + " is no integer from 0 to 2^63 - 1",
                {}, PointerTo(name));
  }
  return std::optional<uint64_t>(value);
}

Result<size_t> QueryLimit(const http::Request& request, size_t otherwise, size_t most) {
  ASSIGN_OR_RETURN(const auto limit, QueryNumber(request, "limit"));
  if (!limit) return otherwise;
  if (*limit >= 1 && *limit <= most) return *limit;
  return Fail(ErrorCode::kInvalidArgument,
              "the query parameter limit is not from 1 to " + std::to_string(most), {},
              PointerTo("limit"));
}

Result<bool> QueryBool(const http::Request& request, std::string_view name) {
  const std::string text = QueryText(request, name);
  if (text == "true") return true;
  if (text == "false" || (text.empty() && !request.query->contains(std::string(name)))) {
    return false;
  }
  return Fail(ErrorCode::kInvalidArgument,
              "the query parameter " + std::string(name) + " is \"true\" or \"false\"", {},
              PointerTo(name));
}

Result<TimePoint> WaitUntil(const http::Request& request, std::optional<uint64_t> wait_ms) {
  const TimePoint now = Clock::now();
  if (wait_ms.value_or(0) == 0) return now;
  if (!request.may_wait) {
    return Fail(ErrorCode::kResourceExhausted, "too many requests are waiting at once",
                "ask again with wait_ms=0, or later");
  }
  const uint64_t cut = std::min<uint64_t>(*wait_ms, static_cast<uint64_t>(kWaitMax.count()));
  return now + milliseconds(static_cast<int64_t>(cut));
}

TimePoint WaitIfItMay(const http::Request& request, std::optional<uint64_t> wait_ms) {
  return WaitUntil(request, wait_ms).value_or(Clock::now());
}

wire::BodyWriter WriterFor(const http::Request& request) {
  return wire::BodyWriter(ResponseFormatOf(request));
}

http::Response Reply(const http::Request& request, int status, wire::BodyWriter writer) {
  http::Response response;
  response.status = status;
  response.content_type = ResponseFormatOf(request) == wire::BodyFormat::kCbor ? kCbor : kJson;
  response.body = writer.Take();
  return response;
}

http::Response NoContent() {
  http::Response response;
  response.status = 204;
  return response;
}

}  // namespace gantry::api
