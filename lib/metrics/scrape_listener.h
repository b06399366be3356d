// Serves /metrics on an address of its own, for Prometheus to scrape. Start and the destructor
// belong to one thread.
#pragma once

#include <prometheus/collectable.h>

#include <memory>
#include <string>
#include <vector>

#include "lib/base/result.h"

namespace gantry::metrics {

class ScrapeListener {
 public:
  // "address:port", or "[address]:port" for IPv6; port 0 takes any.
  static Result<std::unique_ptr<ScrapeListener>> Start(
      const std::string& address,
      const std::vector<std::shared_ptr<prometheus::Collectable>>& sources);
  virtual ~ScrapeListener() = default;

  virtual int port() const = 0;
};

}  // namespace gantry::metrics
