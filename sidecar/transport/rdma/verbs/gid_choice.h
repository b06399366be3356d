// Which of a port's GIDs a queue pair uses: the one that the peer can answer, of those that belong
// to this network namespace. A pure function. Stateless; thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lib/base/result.h"
#include "lib/wire/rdma_types.h"

namespace gantry::transport {

using wire::Gid;

enum class GidType { kInfiniBand, kRoceV1, kRoceV2 };

// One entry of a port's table.
struct GidEntry {
  int index = 0;
  GidType type = GidType::kRoceV2;
  Gid gid = {};  // all zero: the entry is empty
  std::string netdev = {};
  bool is_here = true;     // its interface is in this network namespace and has this address
  int prefix_length = -1;  // of that address, of an IPv4 one up to 32; -1: unknown
};

struct GidWishes {
  int index = -1;                // an operator's; -1: none
  std::optional<Gid> peer = {};  // the peer's GID, where it is known
  Gid usual = {};                // taken where the peer's subnet decides nothing
};

struct GidChoice {
  int index = 0;
  std::string reason;  // "RoCE v2 over IPv4, 10.0.1.3 of eth1, in the peer's subnet"
};

// InfiniBand: index 0. RoCE: version 2 over IPv4, else over a global IPv6 address, else a
// link-local one; of those only the ones of the peer's protocol, first the ones of the peer's
// subnet, then the usual one. RoCE version 1 is never used, also where an operator asks for it.
Result<GidChoice> ChooseGid(const std::vector<GidEntry>& gids, const GidWishes& wishes);

bool InSubnetOf(const GidEntry& entry, const Gid& peer);  // where its prefix is known

// As an address is written: "10.0.1.3" of a mapped one, "fe80::1".
std::string TextOf(const Gid& gid);

}  // namespace gantry::transport
