// The metrics that are read at each scrape: table sizes, workers, peers, and the process itself.
// Thread-safe.
#pragma once

#include <prometheus/collectable.h>

#include <functional>
#include <string>
#include <vector>

#include "lib/base/mutex.h"
#include "sidecar/metrics/metrics.h"

namespace gantry::metrics {

class ScrapeGauges : public prometheus::Collectable {
 public:
  explicit ScrapeGauges(std::string_view version) : version_(version) {}

  void SetSource(std::function<GaugeSample()> source) EXCLUDES(mutex_);
  std::vector<prometheus::MetricFamily> Collect() const override EXCLUDES(mutex_);

 private:
  const std::string version_;
  mutable Mutex mutex_;
  std::function<GaugeSample()> source_ GUARDED_BY(mutex_);  // null: all are 0
};

}  // namespace gantry::metrics
