#include "lib/http/long_lines.h"

#include <httplib.h>

#include "lib/http/head_lines.h"
#include "lib/http/request_framing.h"

namespace gantry::http {
namespace {

constexpr std::string_view kEndOfLine = "\r\n";
static_assert(kShortLineBytesMax + kEndOfLine.size() < CPPHTTPLIB_HEADER_MAX_LENGTH);
static_assert(kTargetBytesMax < CPPHTTPLIB_REQUEST_URI_MAX_LENGTH);

}  // namespace

std::string WithoutLongLines(std::string_view head) {
  std::string kept;
  while (const auto line = TakeLine(&head)) {
    if (line->size() <= kShortLineBytesMax) kept.append(*line).append(kEndOfLine);
  }
  return kept;
}

std::string_view LongValueOf(std::string_view head, std::string_view name) {
  while (const auto line = TakeLine(&head)) {
    if (line->size() <= kShortLineBytesMax) continue;
    const auto header = HeaderIn(*line);
    if (header && EqualsIgnoringCase(header->name, name)) return header->value;
  }
  return {};
}

}  // namespace gantry::http
