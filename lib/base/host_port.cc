#include "lib/base/host_port.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <charconv>

namespace gantry {
namespace {

constexpr size_t kDnsNameBytesMax = 253;

bool IsV4(const std::string& host) {
  in_addr address;
  return ::inet_pton(AF_INET, host.c_str(), &address) == 1;
}

bool IsV6(const std::string& host) {
  in6_addr address;
  return ::inet_pton(AF_INET6, host.c_str(), &address) == 1;
}

bool IsDnsName(std::string_view host) {
  if (host.empty() || host.size() > kDnsNameBytesMax || host.front() == '-') return false;
  const bool only_digits = std::all_of(host.begin(), host.end(),
                                       [](char c) { return (c >= '0' && c <= '9') || c == '.'; });
  if (only_digits || host.front() == '.' || host.find("..") != std::string_view::npos) return false;
  return std::all_of(host.begin(), host.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '-' || c == '_';
  });
}

}  // namespace

std::string HostPort::Text() const {
  const bool v6 = host.find(':') != std::string::npos;
  return (v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

Result<HostPort> ParseHostPort(std::string_view text) {
  const size_t colon = text.rfind(':');
  HostPort parsed;
  bool ok = colon != std::string_view::npos;
  if (ok) {
    const std::string_view port = text.substr(colon + 1);
    const auto read = std::from_chars(port.data(), port.data() + port.size(), parsed.port);
    ok = read.ec == std::errc() && read.ptr == port.data() + port.size();
    std::string_view host = text.substr(0, colon);
    const bool brackets = host.size() > 2 && host.front() == '[' && host.back() == ']';
    if (brackets) host = host.substr(1, host.size() - 2);
    parsed.host = host;
    // A text with a NUL byte ends earlier for inet_pton.
    ok = ok && host.find('\0') == std::string_view::npos &&
         (brackets ? IsV6(parsed.host) : IsV4(parsed.host) || IsDnsName(host));
  }
  if (ok) return parsed;
  return Fail(ErrorCode::kInvalidArgument, "'" + std::string(text) + "' is no host with a port",
              "write name:port, 10.0.0.1:port or [fd00::1]:port");
}

bool IsLoopback(std::string_view host) {
  const std::string text(host);
  in_addr v4;
  if (::inet_pton(AF_INET, text.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  in6_addr v6;
  if (::inet_pton(AF_INET6, text.c_str(), &v6) == 1) return IN6_IS_ADDR_LOOPBACK(&v6) != 0;
  return text == "localhost";
}

}  // namespace gantry
