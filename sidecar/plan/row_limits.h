// What one copy of rows may be, where that is how a transport moves the same blocks of many buffers
// best. Immutable; thread-safe.
#pragma once

#include <cstdint>

namespace gantry::transport {

struct RowLimits {
  uint64_t rows_min = 0;       // of one copy; 0: blocks are moved one by one
  uint64_t row_bytes_max = 0;  // of one row: longer ones are copies by themselves
  uint64_t bytes_max = 0;      // of all rows
  uint64_t step_max = 0;       // from one row to the next
  // Where most of the blocks are rows of no more than row_bytes_max the others are cut into rows of
  // this, too: all would wait for copies of a few. 0: they are left as they are.
  uint64_t few_row_bytes_max = 0;

  bool any() const { return rows_min > 0; }
};

}  // namespace gantry::transport
