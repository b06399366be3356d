// Chooses the GID of a port for a queue pair: one of this network namespace that the peer can
// reach. Pure functions. Stateless; thread-safe.
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

// One entry of a port's GID table.
struct GidEntry {
  int index = 0;
  GidType type = GidType::kRoceV2;
  Gid gid = {};  // all zero: the entry is empty
  std::string netdev = {};
  bool is_here = true;     // its interface and address are in this network namespace
  int prefix_length = -1;  // of that address, at most 32 for IPv4; -1: unknown
};

struct GidWishes {
  int index = -1;                // set by an operator; -1: none
  std::optional<Gid> peer = {};  // if known
  Gid usual = {};                // chosen when the peer's subnet does not decide
};

struct GidChoice {
  int index = 0;
  std::string reason;  // "RoCE v2 over IPv4, 10.0.1.3 of eth1, in the peer's subnet"
};

// InfiniBand: index 0. RoCE: version 2 over IPv4, else over a global IPv6 address, else over a
// link-local one. Only GIDs of the peer's protocol count: first those of its subnet, then the usual
// one. RoCE version 1 is never used, even if an operator asks for it.
Result<GidChoice> ChooseGid(const std::vector<GidEntry>& gids, const GidWishes& wishes);

bool InSubnetOf(const GidEntry& entry, const Gid& peer);  // false if the prefix is unknown

// Formats it as an address: "10.0.1.3" if mapped, or "fe80::1".
std::string TextOf(const Gid& gid);

}  // namespace gantry::transport
