// Periodic work: overdue removals, expired holds, trimming of the heap, and replaced certificates
// (peers see them even without a listener). Each round reports to Liveness.
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
  ~Housekeeping() = default;  // waits for the current round

 private:
  explicit Housekeeping(const Parts& parts) : parts_(parts) {}
  void Run(const std::stop_token& stop);

  const Parts parts_;
  std::jthread thread_;
};

}  // namespace gantry
