#include "connectors/nixl/agent/own_address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include "lib/base/host_port.h"

namespace gantry::nixl {
namespace {

// The first address of an interface that is up and no loopback; else the loopback's.
std::string MachineAddress(int family) {
  std::string found = family == AF_INET6 ? "::1" : "127.0.0.1";
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return found;
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != family ||
        (one->ifa_flags & IFF_LOOPBACK) != 0 || (one->ifa_flags & IFF_UP) == 0)
      continue;
    char text[INET6_ADDRSTRLEN] = {};
    const void* address =
        family == AF_INET6 ? static_cast<const void*>(
                                 &reinterpret_cast<const sockaddr_in6*>(one->ifa_addr)->sin6_addr)
                           : &reinterpret_cast<const sockaddr_in*>(one->ifa_addr)->sin_addr;
    if (::inet_ntop(family, address, text, sizeof(text)) == nullptr) continue;
    if (std::string(text).starts_with("fe80")) continue;  // reachable on its own link alone
    found = text;
    break;
  }
  ::freeifaddrs(all);
  return found;
}

}  // namespace

std::string ReachableAddress(const std::string& listens, const std::string& host) {
  auto parsed = ParseHostPort(listens);
  if (!parsed) return "";
  if (!host.empty()) {
    parsed->host = host;
  } else if (parsed->host == "0.0.0.0" || parsed->host == "::") {
    parsed->host = MachineAddress(parsed->host == "::" ? AF_INET6 : AF_INET);
  }
  return parsed->Text();
}

}  // namespace gantry::nixl
