// The outcome of a notification, for its sender. Plain values.
#pragma once

#include <optional>
#include <string>

#include "lib/base/clock.h"
#include "lib/base/error.h"

namespace gantry::engine {

struct DeliveryReport {
  std::string to_peer;  // empty: this sidecar
  std::string to_workload;
  std::string request_id;
  std::optional<Error> error;           // why it was not delivered; none: it was
  std::optional<microseconds> at_peer;  // see DeliveryDone
};

}  // namespace gantry::engine
