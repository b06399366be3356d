// All series of one metric over closed label sets, created at once. Each exists from the start, and
// updating one is an array access. Immutable after construction; thread-safe.
#pragma once

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <initializer_list>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace gantry::metrics {

struct LabelSet {
  std::string_view name;
  std::span<const std::string_view> values;
};

// Metric is prometheus::Counter, prometheus::Gauge or prometheus::Histogram.
template <typename Metric>
class SeriesGrid {
 public:
  // `extra` is passed to Metric's constructor: nothing, or the buckets of a histogram. Help must
  // not contain a newline or a backslash, since the library does not escape it.
  template <typename... Extra>
  SeriesGrid(prometheus::Registry& registry, std::string_view name, std::string_view help,
             std::initializer_list<LabelSet> sets, const Extra&... extra)
      : sets_(sets) {
    auto& family = Builder().Name(std::string(name)).Help(std::string(help)).Register(registry);
    size_t count = 1;
    for (const LabelSet& set : sets_) count *= set.values.size();
    for (size_t i = 0; i < count; ++i) series_.push_back(&family.Add(LabelsOf(i), extra...));
  }

  // Returns the series for one index per label set, in their order.
  template <typename... Index>
  Metric& At(Index... index) const {
    size_t position = 0;
    size_t set = 0;
    ((position = position * sets_[set++].values.size() + static_cast<size_t>(index)), ...);
    return *series_.at(position);
  }

 private:
  static auto Builder() {
    if constexpr (std::is_same_v<Metric, prometheus::Counter>) {
      return prometheus::BuildCounter();
    } else if constexpr (std::is_same_v<Metric, prometheus::Gauge>) {
      return prometheus::BuildGauge();
    } else {
      return prometheus::BuildHistogram();
    }
  }

  std::map<std::string, std::string> LabelsOf(size_t position) const {
    std::map<std::string, std::string> labels;
    for (size_t i = sets_.size(); i-- > 0;) {
      const auto values = sets_[i].values;
      labels[std::string(sets_[i].name)] = values[position % values.size()];
      position /= values.size();
    }
    return labels;
  }

  const std::vector<LabelSet> sets_;
  std::vector<Metric*> series_;  // owned by the registry
};

using CounterGrid = SeriesGrid<prometheus::Counter>;
using GaugeGrid = SeriesGrid<prometheus::Gauge>;
using HistogramGrid = SeriesGrid<prometheus::Histogram>;

}  // namespace gantry::metrics
