// Serves /metrics on an address of its own, for Prometheus to scrape. Thread-safe.
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

// What all of them have to tell now, in Prometheus' text format.
std::string Exposition(const Sources& sources);

class ScrapeListener {
 public:
  // `address` is a literal one: "0.0.0.0:9464", "[::]:9464" (IPv4, too); port 0 takes any.
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
