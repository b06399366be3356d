// Takes the place of a transport that this machine cannot use, so that reports show the reason.
// Thread-safe.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "sidecar/transport/transport.h"

namespace gantry::transport {

class UnavailableTransport final : public Transport {
 public:
  UnavailableTransport(wire::Path path, Error why) : path_(path), why_(std::move(why)) {}

  TransportTraits traits() const override { return {.path = path_}; }
  Status Probe() override { return Fail(why_); }
  Status CanCarry(const LocalSide&, const std::vector<RemoteAllocation>&) const override {
    return Fail(why_);
  }
  Status CanReach(const memory::MappedAllocation&, const RemoteAllocation&) const override {
    return Fail(why_);
  }
  // Never called: Probe always fails.
  std::unique_ptr<Operation> Start(std::shared_ptr<const MovePlan>, int, uint64_t) override {
    return nullptr;
  }
  PollOutcome Poll(std::vector<uint64_t>*) override { return {}; }

 private:
  const wire::Path path_;
  const Error why_;
};

}  // namespace gantry::transport
