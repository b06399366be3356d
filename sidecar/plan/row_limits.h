// Limits of one strided copy, for transports that move the same blocks of many buffers best as
// rows. Immutable; thread-safe.
#pragma once

#include <cstdint>

namespace gantry::transport {

struct RowLimits {
  uint64_t rows_min = 0;       // per copy; 0: blocks are moved one by one
  uint64_t row_bytes_max = 0;  // per row; longer rows are copies by themselves
  uint64_t bytes_max = 0;      // total over all rows
  uint64_t step_max = 0;       // distance between rows
  // If most blocks fit row_bytes_max, the others are cut into rows of this length, too. Otherwise
  // the transfer would wait for a few long copies. 0: they are not cut.
  uint64_t few_row_bytes_max = 0;

  bool any() const { return rows_min > 0; }
};

}  // namespace gantry::transport
