#include "sidecar/worker/channel/shared_costs.h"

namespace gantry::worker {
namespace {

enum State : uint32_t { kOff, kWanted, kBegun, kPublished };

}  // namespace

void WantCosts(RingLayout* ring) { ring->costs.state.store(kWanted); }

bool BeginCosts(RingLayout* ring) {
  uint32_t expected = kWanted;
  return ring->costs.state.compare_exchange_strong(expected, kBegun);
}

void PublishCosts(const MeasuredCosts& measured, RingLayout* ring) {
  for (size_t i = 0; i < measured.size(); ++i) {
    ring->costs.values[i].store(measured[i], std::memory_order_relaxed);
  }
  ring->costs.state.store(kPublished, std::memory_order_release);
}

std::optional<MeasuredCosts> ReadCosts(const RingLayout& ring) {
  if (ring.costs.state.load(std::memory_order_acquire) != kPublished) return std::nullopt;
  MeasuredCosts measured;
  for (size_t i = 0; i < measured.size(); ++i) {
    measured[i] = ring.costs.values[i].load(std::memory_order_relaxed);
  }
  return measured;
}

}  // namespace gantry::worker
