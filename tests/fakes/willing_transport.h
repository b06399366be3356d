// A transport that refuses no transfer. Tests derive from it and say how it moves bytes. Its
// questions are thread-safe.
#pragma once

#include <memory>
#include <vector>

#include "sidecar/transport/transport.h"

namespace gantry::testing {

class WillingTransport : public transport::Transport {
 public:
  explicit WillingTransport(const transport::TransportTraits& traits) : traits_(traits) {}

  transport::TransportTraits traits() const override { return traits_; }
  Status Probe() override { return {}; }
  Status CanCarry(const transport::LocalSide& /*local*/,
                  const std::vector<transport::RemoteAllocation>& /*remote*/) const override {
    return {};
  }
  Status CanReach(const memory::MappedAllocation& /*local*/,
                  const transport::RemoteAllocation& /*remote*/) const override {
    return {};
  }

 private:
  const transport::TransportTraits traits_;
};

}  // namespace gantry::testing
