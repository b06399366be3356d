#include "bench/sample_statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace gantry::bench {

void Samples::Add(double value) { values_.push_back(value); }

double Samples::Percentile(double fraction) const {
  if (values_.empty()) return 0;
  std::vector<double> sorted = values_;
  const auto count = static_cast<double>(sorted.size());
  const auto rank = static_cast<size_t>(std::max(std::ceil(fraction * count), 1.0)) - 1;
  const size_t index = std::min(rank, sorted.size() - 1);
  std::nth_element(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(index),
                   sorted.end());
  return sorted[index];
}

double Samples::Mean() const {
  if (values_.empty()) return 0;
  return std::accumulate(values_.begin(), values_.end(), 0.0) / static_cast<double>(values_.size());
}

}  // namespace gantry::bench
