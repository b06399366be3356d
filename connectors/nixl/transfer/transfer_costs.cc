#include "connectors/nixl/transfer/transfer_costs.h"

#include <algorithm>

namespace gantry::nixl {
namespace {

constexpr uint64_t kFewBytes = 64 << 10;
constexpr double kWeight = 0.25;  // of the newest observation
constexpr size_t kAgentsMax = 1024;

double Mixed(double before, double now) { return before + kWeight * (now - before); }

}  // namespace

void TransferCosts::Observe(const std::string& agent, uint64_t bytes, microseconds took) {
  const MutexLock lock(mutex_);
  if (by_agent_.size() >= kAgentsMax && !by_agent_.contains(agent)) by_agent_.clear();
  Cost& cost = by_agent_[agent];
  const auto took_us = static_cast<double>(std::max<int64_t>(took.count(), 1));
  if (bytes <= kFewBytes) {
    cost.start_us = Mixed(cost.start_us, took_us);
  } else {
    const double moving_us = std::max(took_us - cost.start_us, took_us / 2);
    cost.bytes_per_us = Mixed(cost.bytes_per_us, static_cast<double>(bytes) / moving_us);
  }
  cost.observed = true;
}

TransferCosts::Estimate TransferCosts::Of(const std::string& agent, uint64_t bytes) const {
  Cost cost;
  {
    const MutexLock lock(mutex_);
    if (const auto found = by_agent_.find(agent); found != by_agent_.end()) cost = found->second;
  }
  const auto us =
      static_cast<int64_t>(cost.start_us + static_cast<double>(bytes) / cost.bytes_per_us);
  return {microseconds(us), microseconds(cost.observed ? us / 2 : us)};
}

}  // namespace gantry::nixl
