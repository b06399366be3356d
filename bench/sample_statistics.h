// Median, percentiles and the like of a few measurements. Used by one thread at a time.
#pragma once

#include <cstddef>
#include <vector>

namespace gantry::bench {

class Samples {
 public:
  void Add(double value);
  bool empty() const { return values_.empty(); }
  size_t size() const { return values_.size(); }
  // The smallest value that `fraction` of all do not exceed. 0 without values.
  double Percentile(double fraction) const;
  double Median() const { return Percentile(0.5); }
  double Mean() const;
  double Least() const { return Percentile(0); }

 private:
  std::vector<double> values_;
};

}  // namespace gantry::bench
