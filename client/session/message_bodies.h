// The bodies of /v1/notifications and /v1/holds, as JSON. Thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "client/include/gantry_messages.h"
#include "lib/base/result.h"

namespace gantry::client {

// Whether the members that have to be there are, and no larger than the sidecar takes.
Status CheckMessage(const gantry_message& message);

std::string NotificationBody(std::string_view workload, std::string_view peer,
                             const gantry_message& message, uint64_t deadline_ms);
Result<std::string> HoldBody(std::string_view workload, const gantry_hold_spec& spec);
std::string HoldExtensionBody(std::string_view workload, uint64_t ttl_ms);

}  // namespace gantry::client
