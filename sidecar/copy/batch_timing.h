// Where some workers have copy engines take rows and others hand the same rows over in batches:
// whether a batch that is posted now comes back before the rows are done. A GPU that computes lets
// batches wait for milliseconds, and the transfer with them. By what was seen lately; owned by the
// engine's driver.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lib/base/clock.h"

namespace gantry::transport {

class BatchTiming {
 public:
  explicit BatchTiming(size_t workers) : workers_(workers) {}

  void RowsPosted(int worker, uint64_t bytes) { at(worker).rows_in_flight += bytes; }
  // `taken`: by the worker's clock; 0: they were not copied.
  void RowsDone(int worker, uint64_t bytes, nanoseconds taken, TimePoint now);
  // A batch that was posted behind `ahead` others of its worker, from then on.
  void BatchDone(int worker, size_t ahead, nanoseconds taken, TimePoint now);

  // `by_rows`: the workers that copy the rest, and `bytes_left`, which nobody was given yet. What
  // is not known is tried.
  bool ComesBackInTime(int worker, size_t ahead, std::span<const int> by_rows, uint64_t bytes_left,
                       TimePoint now) const;

 private:
  // Smoothed, and forgotten after a while, or behind many bytes of copies; `moved`: up to now.
  class Estimate {
   public:
    void Add(double value, TimePoint now, uint64_t moved = 0);
    double Get(TimePoint now, uint64_t moved = 0) const;  // 0: not known

   private:
    double value_ = 0;
    TimePoint seen_;
    uint64_t moved_ = 0;
  };
  static constexpr size_t kAheadMax = 4;
  struct Worker {
    uint64_t rows_in_flight = 0;                   // bytes
    Estimate rows_rate;                            // bytes in a nanosecond
    std::array<Estimate, kAheadMax> batches_take;  // nanoseconds, by how many were ahead
  };

  Worker& at(int worker) { return workers_[static_cast<size_t>(worker)]; }
  const Worker& at(int worker) const { return workers_[static_cast<size_t>(worker)]; }

  std::vector<Worker> workers_;
  uint64_t moved_ = 0;  // as rows, by all
};

}  // namespace gantry::transport
