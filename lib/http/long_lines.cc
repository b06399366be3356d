#include "lib/http/long_lines.h"

#include <httplib.h>
#include <strings.h>

#include <algorithm>

#include "lib/http/request_framing.h"

namespace gantry::http {
namespace {

constexpr std::string_view kEndOfLine = "\r\n";
static_assert(kShortLineBytesMax + kEndOfLine.size() < CPPHTTPLIB_HEADER_MAX_LENGTH);
static_assert(kTargetBytesMax < CPPHTTPLIB_REQUEST_URI_MAX_LENGTH);

// Calls `take` with each line of the head and its end, until that answers false.
template <typename Take>
void ForEachLine(std::string_view head, const Take& take) {
  while (!head.empty()) {
    const size_t end = std::min(head.find(kEndOfLine), head.size());
    const std::string_view line = head.substr(0, end + kEndOfLine.size());
    if (!take(line)) return;
    head.remove_prefix(line.size());
  }
}

bool IsLong(std::string_view line) { return line.size() > kShortLineBytesMax; }

bool IsOf(std::string_view line, std::string_view name) {
  return line.size() > name.size() && line[name.size()] == ':' &&
         ::strncasecmp(line.data(), name.data(), name.size()) == 0;
}

}  // namespace

std::string WithoutLongLines(std::string_view head) {
  std::string kept;
  ForEachLine(head, [&](std::string_view line) {
    if (!IsLong(line)) kept.append(line);
    return true;
  });
  return kept;
}

std::string_view LongValueOf(std::string_view head, std::string_view name) {
  std::string_view value;
  ForEachLine(head, [&](std::string_view line) {
    if (!IsLong(line) || !IsOf(line, name)) return true;
    value = line.substr(name.size() + 1);
    const size_t first = std::min(value.find_first_not_of(" \t"), value.size());
    const size_t last = value.find_last_not_of(" \t\r\n");
    value =
        last == std::string_view::npos ? std::string_view() : value.substr(first, last + 1 - first);
    return false;
  });
  return value;
}

}  // namespace gantry::http
