// "host:port" in settings and requests. The host is a DNS name, an IPv4 address, or an IPv6 address
// in brackets. Stateless; thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "lib/base/result.h"

namespace gantry {

struct HostPort {
  std::string host;  // without brackets
  uint16_t port = 0;

  // Formats as it is parsed: "[::1]:7000".
  std::string Text() const;
  bool operator==(const HostPort&) const = default;
};

// Port 0 is accepted (a listener then takes any). Names are not resolved.
Result<HostPort> ParseHostPort(std::string_view text);

// True for 127.0.0.0/8, ::1 and localhost: reachable only from this machine or pod.
bool IsLoopback(std::string_view host);

}  // namespace gantry
