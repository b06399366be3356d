// Serves /metrics on its own address for Prometheus. Thread-safe.
#pragma once

#include <prometheus/collectable.h>

#include <memory>
#include <string>
#include <vector>

#include "lib/base/result.h"

namespace gantry::http {
class HttpServer;
}

namespace gantry::metrics {

using Sources = std::vector<std::shared_ptr<prometheus::Collectable>>;

// Returns the current values of all sources in Prometheus' text format.
std::string Exposition(const Sources& sources);

class ScrapeListener {
 public:
  // `address` is literal: "0.0.0.0:9464", or "[::]:9464", which includes IPv4. Port 0 picks one.
  static Result<std::unique_ptr<ScrapeListener>> Start(const std::string& address, Sources sources);
  ~ScrapeListener();  // waits for running scrapes
  ScrapeListener(const ScrapeListener&) = delete;
  ScrapeListener& operator=(const ScrapeListener&) = delete;

  int port() const;

 private:
  explicit ScrapeListener(std::unique_ptr<http::HttpServer> server);
  const std::unique_ptr<http::HttpServer> server_;
};

}  // namespace gantry::metrics
