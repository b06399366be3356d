// "host:port" as settings and requests write it: a DNS name, an IPv4 address, or an IPv6 address in
// brackets. Stateless; thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "lib/base/result.h"

namespace gantry {

struct HostPort {
  std::string host;  // without brackets
  uint16_t port = 0;

  // As it was written: "[::1]:7000".
  std::string Text() const;
  bool operator==(const HostPort&) const = default;
};

// The port may be 0 (a listener that takes any); a name is not looked up.
Result<HostPort> ParseHostPort(std::string_view text);

// True for 127.0.0.0/8, ::1 and localhost: what only this machine (or this pod) reaches.
bool IsLoopback(std::string_view host);

}  // namespace gantry
