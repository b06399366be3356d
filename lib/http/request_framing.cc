#include "lib/http/request_framing.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "lib/http/head_lines.h"

namespace gantry::http {
namespace {

constexpr size_t kMethodBytesMax = 16;

// Acted on by the library: Expect is answered here, ranges and compressed responses do not exist.
constexpr std::array<std::string_view, 3> kHidden = {"expect", "range", "accept-encoding"};

std::optional<Refusal> CheckRequestLine(std::string_view line, const FramingLimits& limits) {
  const size_t method_end = line.find(' ');
  const size_t target_end = line.rfind(' ');
  if (method_end == std::string_view::npos || target_end == method_end) return Refusal::kMalformed;
  const std::string_view method = line.substr(0, method_end);
  const std::string_view target = line.substr(method_end + 1, target_end - method_end - 1);
  const std::string_view version = line.substr(target_end + 1);
  if (method.size() > kMethodBytesMax || !IsToken(method)) return Refusal::kMalformed;
  if (!version.starts_with("HTTP/")) return Refusal::kMalformed;
  if (version != "HTTP/1.1" && version != "HTTP/1.0") return Refusal::kVersion;
  if (target.size() > limits.target_bytes_max) return Refusal::kTargetTooLong;
  if (!target.starts_with('/') || std::any_of(target.begin(), target.end(), IsBlank)) {
    return Refusal::kMalformed;
  }
  return {};
}

// The head of one request, line by line.
class HeadReader {
 public:
  HeadReader(char* bytes, size_t size, const FramingLimits& limits, Framing* framing)
      : bytes_(bytes), rest_(bytes, size), limits_(limits), framing_(framing) {}

  std::optional<Refusal> Read() {
    const auto first = TakeLine(&rest_);
    if (!first) return Refusal::kMalformed;
    if (const auto refusal = CheckRequestLine(*first, limits_)) return refusal;
    for (size_t count = 0;; ++count) {
      const auto line = TakeLine(&rest_);
      if (!line) return Refusal::kMalformed;
      if (line->empty()) return {};
      if (count == limits_.headers_max) return Refusal::kHeadTooLarge;
      const auto header = HeaderIn(*line);
      if (!header) return Refusal::kMalformed;
      if (const auto refusal = TakeHeader(header->name, header->value)) return refusal;
    }
  }

 private:
  std::optional<Refusal> TakeHeader(std::string_view name, std::string_view value) {
    if (EqualsIgnoringCase(name, "transfer-encoding")) return Refusal::kLengthRequired;
    if (EqualsIgnoringCase(name, "content-encoding")) return Refusal::kEncoding;
    if (EqualsIgnoringCase(name, "content-length")) {
      const auto length = NumberIn(value, 10);
      if (has_length_ || !length) return Refusal::kMalformed;
      has_length_ = true;
      if (*length > limits_.body_bytes_max) return Refusal::kBodyTooLarge;
      framing_->body_bytes = *length;
      return {};
    }
    // The library knows it in small letters alone.
    if (EqualsIgnoringCase(name, "connection") && EqualsIgnoringCase(value, "close")) {
      std::copy_n("close", value.size(), bytes_ + (value.data() - bytes_));
    }
    for (const std::string_view hidden : kHidden) {
      if (!EqualsIgnoringCase(name, hidden)) continue;
      if (hidden == "expect")
        framing_->expects_continue = EqualsIgnoringCase(value, "100-continue");
      bytes_[name.data() - bytes_] = '-';
    }
    return {};
  }

  char* const bytes_;
  std::string_view rest_;
  const FramingLimits& limits_;
  Framing* const framing_;
  bool has_length_ = false;
};

Framing Refuse(Framing framing, Refusal refusal) {
  framing.state = Framing::State::kRefused;
  framing.refusal = refusal;
  return framing;
}

// Finds the empty line; before it is there, only the limits are checked.
Framing FindHead(Framing framing, std::string_view bytes, const FramingLimits& limits) {
  const size_t end = bytes.find("\r\n\r\n", framing.scanned);
  if (end != std::string_view::npos && end + 4 <= limits.head_bytes_max) {
    framing.head_bytes = end + 4;
    return framing;
  }
  framing.scanned = bytes.size() < 3 ? 0 : bytes.size() - 3;
  const size_t line = std::min(bytes.find("\r\n"), bytes.size());
  if (line > limits.target_bytes_max + kMethodBytesMax + sizeof(" HTTP/1.1 ")) {
    return Refuse(framing, Refusal::kTargetTooLong);
  }
  if (bytes.size() >= limits.head_bytes_max) return Refuse(framing, Refusal::kHeadTooLarge);
  return framing;
}

}  // namespace

Framing FrameRequest(const Framing& so_far, char* bytes, size_t size, const FramingLimits& limits) {
  Framing framing = so_far;
  if (framing.state != Framing::State::kIncomplete) return framing;
  if (framing.head_bytes == 0) {
    framing = FindHead(framing, {bytes, size}, limits);
    if (framing.state == Framing::State::kRefused || framing.head_bytes == 0) return framing;
    if (const auto refusal = HeadReader(bytes, framing.head_bytes, limits, &framing).Read()) {
      return Refuse(framing, *refusal);
    }
  }
  if (size - framing.head_bytes >= framing.body_bytes) framing.state = Framing::State::kComplete;
  return framing;
}

}  // namespace gantry::http
