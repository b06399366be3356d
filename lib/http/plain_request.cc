#include "lib/http/plain_request.h"

#include <algorithm>
#include <array>
#include <utility>

namespace gantry::http {
namespace {

// The library refuses lines of 8 KiB, which it must not do to a request whose handler has acted.
constexpr size_t kPlainHeadBytesMax = 4096;

constexpr std::string_view kLineEnd = "\r\n";
constexpr std::string_view kNameEnd = ": ";

constexpr std::array<std::string_view, 4> kMethods = {"GET", "POST", "PUT", "DELETE"};

// That stand for themselves in a path and in a query.
constexpr auto kPlain = [] {
  std::array<bool, 256> plain{};
  for (const char c : std::string_view("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                       "0123456789/_.~:@-")) {
    plain[static_cast<uint8_t>(c)] = true;
  }
  return plain;
}();

bool IsPlain(std::string_view text) {
  for (const char c : text) {
    if (!kPlain[static_cast<uint8_t>(c)]) return false;
  }
  return true;
}

// Up to the delimiter, which is taken off, too; all when there is none.
template <typename Delimiter>
std::string_view Take(std::string_view* rest, Delimiter delimiter, size_t bytes) {
  const size_t end = rest->find(delimiter);
  const std::string_view taken = rest->substr(0, end);
  rest->remove_prefix(end == std::string_view::npos ? rest->size() : end + bytes);
  return taken;
}
std::string_view Take(std::string_view* rest, char delimiter) { return Take(rest, delimiter, 1); }
std::string_view TakeLine(std::string_view* rest) { return Take(rest, kLineEnd, kLineEnd.size()); }

bool ReadQuery(std::string_view text, PlainRequest* request) {
  while (!text.empty()) {
    std::string_view value = Take(&text, '&');
    const bool has_value = value.find('=') != std::string_view::npos;
    const std::string_view key = Take(&value, '=');
    if (!has_value || key.empty() || value.empty() || !IsPlain(key) || !IsPlain(value)) {
      return false;
    }
    std::string name(key);
    if (request->query.contains(name)) return false;
    request->query.emplace(std::move(name), value);
  }
  return true;
}

bool ReadLine(std::string_view line, PlainRequest* request) {
  request->method = Take(&line, ' ');
  std::string_view target = Take(&line, ' ');
  if (line != "HTTP/1.1") return false;
  if (target.ends_with('?') || target.ends_with('&')) return false;
  request->path = Take(&target, '?');
  bool known = false;
  for (const std::string_view method : kMethods) known |= request->method == method;
  return known && IsPlain(request->path) && ReadQuery(target, request);
}

}  // namespace

std::optional<PlainRequest> ReadPlainRequest(std::string_view head) {
  PlainRequest request;
  std::string_view host, length, agent, connection;
  const std::array<std::pair<std::string_view, std::string_view*>, 7> known = {
      {{"Host", &host},
       {"Accept", &request.accept},
       {"Authorization", &request.authorization},
       {"Content-Type", &request.content_type},
       {"Content-Length", &length},
       {"User-Agent", &agent},
       {"Connection", &connection}}};
  if (head.size() > kPlainHeadBytesMax || !head.ends_with("\r\n\r\n")) return std::nullopt;
  if (!ReadLine(TakeLine(&head), &request)) return std::nullopt;
  for (std::string_view line = TakeLine(&head); !line.empty(); line = TakeLine(&head)) {
    const std::string_view name = Take(&line, kNameEnd, kNameEnd.size());
    std::string_view* value = nullptr;
    for (const auto& [known_name, known_value] : known) {
      if (name == known_name) value = known_value;
    }
    std::string_view hidden;  // what framing has taken from the library's sight
    if (name.starts_with('-')) value = &hidden;
    // The library decodes values, and takes blanks off.
    if (value == nullptr || !value->empty() || line.empty() || line.front() == ' ' ||
        line.back() == ' ' ||
        std::any_of(line.begin(), line.end(), [](char c) { return c == '%' || c == '\t'; })) {
      return std::nullopt;
    }
    *value = line;
  }
  if (!head.empty() || (!connection.empty() && connection != "keep-alive")) return std::nullopt;
  return request;
}

bool WritePlainResponse(const Response& response, std::string* out) {
  const std::string_view reason = response.status == 200   ? "200 OK"
                                  : response.status == 201 ? "201 Created"
                                  : response.status == 202 ? "202 Accepted"
                                                           : "";
  if (reason.empty() || response.stream || response.body.empty() || response.content_type.empty() ||
      !response.headers.empty()) {
    return false;
  }
  out->reserve(out->size() + 192 + response.body.size());
  out->append("HTTP/1.1 ").append(reason);
  out->append("\r\nContent-Length: ").append(std::to_string(response.body.size()));
  out->append("\r\nContent-Type: ").append(response.content_type);
  out->append("\r\nKeep-Alive: timeout=5, max=1000000\r\n\r\n").append(response.body);
  return true;
}

}  // namespace gantry::http
