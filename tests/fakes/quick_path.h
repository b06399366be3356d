// A transport that moves everything at its next poll. Used by the driver.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "sidecar/transfer/unmoved_operation.h"
#include "tests/fakes/willing_transport.h"

namespace gantry::testing {

class QuickPath final : public WillingTransport {
 public:
  explicit QuickPath(wire::Path path) : WillingTransport({.path = path}) {}

  std::unique_ptr<transport::Operation> Start(std::shared_ptr<const transport::MovePlan> plan,
                                              int /*priority*/, uint64_t token) override {
    tokens_.push_back(token);
    return std::make_unique<engine::UnmovedOperation>(*plan, Clock::now());
  }
  transport::PollOutcome Poll(std::vector<uint64_t>* ready_tokens) override {
    const transport::PollOutcome outcome = {.progressed = !tokens_.empty()};
    for (const uint64_t token : std::exchange(tokens_, {})) ready_tokens->push_back(token);
    return outcome;
  }

 private:
  std::vector<uint64_t> tokens_;
};

}  // namespace gantry::testing
