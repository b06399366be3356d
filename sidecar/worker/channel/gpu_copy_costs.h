// The costs of copies between GPUs: a model from which the planner chooses the means of a copy. The
// first worker of each GPU measures them at its start. Until then, and where that fails, they have
// the values of H200. Plain values and pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "lib/base/result.h"

namespace gantry::worker {

// Each default is from two H200, except where it says otherwise.
struct GpuCopyCosts {
  // Nanoseconds in which a worker hands a block of a batch to the copy engines, while all workers
  // do. Source: batches of all workers, docs/decisions/0010.
  uint64_t block_ns = 850;
  // MB/s at which a kernel copies blocks while nothing else runs on its GPU. Source:
  // docs/decisions/0010.
  uint64_t kernel_mb_s = 375'000;
  // Time that the engines of a pair of GPUs take for a row: picoseconds for the row, and
  // femtoseconds for each of its bytes. Source: rows of 4 to 64 KiB on two H100 that compute,
  // docs/decisions/0016.
  uint64_t row_ps = 19'000;
  uint64_t row_byte_fs = 2'260;
  // Microseconds for which a kernel may wait before its GPU counts as busy. Not measured: it is a
  // part of a driver's time slice. Source: docs/decisions/0010.
  uint64_t turn_us = 750;

  bool operator==(const GpuCopyCosts&) const = default;
};

struct CostField {
  std::string_view name;  // with the unit
  uint64_t GpuCopyCosts::*value;
  // Bounds of what is plausible, and of what may be set.
  uint64_t least;
  uint64_t most;
  bool measured;
};

inline constexpr std::array<CostField, 5> kCostFields = {{
    {"block_ns", &GpuCopyCosts::block_ns, 20, 100'000, true},
    {"kernel_mb_s", &GpuCopyCosts::kernel_mb_s, 2'000, 20'000'000, true},
    {"row_ps", &GpuCopyCosts::row_ps, 100, 10'000'000, true},
    {"row_byte_fs", &GpuCopyCosts::row_byte_fs, 20, 1'000'000, true},
    {"turn_us", &GpuCopyCosts::turn_us, 10, 1'000'000, false},
}};

constexpr bool IsPlausible(const CostField& field, uint64_t value) {
  return value >= field.least && value <= field.most;
}

// Values that were measured; 0: this one was not.
using MeasuredCosts = std::array<uint64_t, kCostFields.size()>;

enum class CostOrigin : uint8_t { kFallback, kMeasured, kSet };
std::string_view NameOf(CostOrigin origin);  // "fallback"

// Costs, and where each is from.
struct GpuCosts {
  GpuCopyCosts values;
  std::array<CostOrigin, kCostFields.size()> origins = {};

  // Whether a measurement would change anything.
  bool WantMeasured() const;
  // Takes the plausible values for those that are not set.
  void Take(const MeasuredCosts& measured);
};

// Parses "block_ns=700"; several in any order.
Result<GpuCosts> ParseCosts(std::span<const std::string> set);

// Fails when a value is implausible. Such a measurement is dropped whole.
Status CheckMeasured(const MeasuredCosts& measured);

// The GPUs for which the first worker of one says why nothing was measured. What the driver cannot
// do holds for all of them: the first GPU's worker says it once, and for the others this is empty.
// `uuids` has all GPUs, that worker's own first; `index` is the place of its own among them.
std::string GpusToNameFor(const Error& why, int index, std::span<const std::string> uuids);

}  // namespace gantry::worker
