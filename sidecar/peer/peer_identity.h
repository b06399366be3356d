// Who this sidecar is to others: its name, this start of it, and the machine it runs on.
// Plain values.
#pragma once

#include <cstdint>
#include <string>

#include "lib/base/result.h"

namespace gantry::peer {

struct PeerIdentity {
  std::string name;
  uint64_t generation = 0;  // random, new at every start
  std::string node_id;      // boot id: two sidecars with the same one share memory
  std::string build;        // version, for people
};

// The kernel's boot id, the same in every container of a machine.
Result<std::string> ReadNodeId();

}  // namespace gantry::peer
