// What is to be done now and then: removals that missed their deadline because a copy was running,
// holds that are over, memory that malloc keeps, and certificates that were replaced (also without
// a listener they are shown to peers). Tells the liveness that it came round.
#pragma once

#include <memory>
#include <stop_token>
#include <thread>

#include "lib/base/result.h"

namespace gantry {

class Liveness;
namespace engine {
class HoldTable;
class TransferEngine;
}  // namespace engine
namespace peer {
class PeerSecurity;
}
namespace registry {
class BufferRegistry;
class WorkloadTable;
}  // namespace registry

class Housekeeping {
 public:
  struct Parts {  // outlive it
    peer::PeerSecurity& security;
    registry::BufferRegistry& registry;
    registry::WorkloadTable& workloads;
    engine::TransferEngine& engine;
    engine::HoldTable& holds;
    Liveness& liveness;
  };

  static Result<std::unique_ptr<Housekeeping>> Start(const Parts& parts);
  ~Housekeeping() = default;  // waits for the round that is under way

 private:
  explicit Housekeeping(const Parts& parts) : parts_(parts) {}
  void Run(const std::stop_token& stop);

  const Parts parts_;
  std::jthread thread_;
};

}  // namespace gantry
