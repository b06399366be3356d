#include "sidecar/transport/rdma/verbs/gid_choice.h"

#include <arpa/inet.h>

#include <algorithm>
#include <tuple>

namespace gantry::transport {
namespace {

constexpr size_t kIpv4At = 12;  // in a mapped GID, ::ffff:a.b.c.d

bool IsEmpty(const Gid& gid) { return gid == Gid{}; }

bool IsIpv4(const Gid& gid) {
  constexpr std::array<uint8_t, kIpv4At> kMapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::equal(kMapped.begin(), kMapped.end(), gid.begin());
}

bool IsLinkLocal(const Gid& gid) {
  if (IsIpv4(gid)) return gid[kIpv4At] == 169 && gid[kIpv4At + 1] == 254;
  return gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80;
}

std::string KindOf(const GidEntry& entry) {
  if (entry.type == GidType::kInfiniBand) return "InfiniBand";
  const std::string version = entry.type == GidType::kRoceV1 ? "RoCE v1" : "RoCE v2";
  return version + (IsIpv4(entry.gid) ? " over IPv4" : " over IPv6") +
         (IsLinkLocal(entry.gid) ? ", link-local" : "");
}

// "RoCE v2 over IPv4, 10.0.1.3 of eth1"
std::string Described(const GidEntry& entry) {
  return KindOf(entry) + ", " + TextOf(entry.gid) +
         (entry.netdev.empty() ? "" : " of " + entry.netdev);
}

// Everything in the table, for errors.
std::string Listed(const std::vector<GidEntry>& gids) {
  std::string list;
  for (const GidEntry& entry : gids) {
    if (IsEmpty(entry.gid)) continue;
    list +=
        (list.empty() ? "" : "; ") + std::to_string(entry.index) + ": " + Described(entry) +
        (entry.is_here || entry.type == GidType::kInfiniBand ? ""
                                                             : " (not in this network namespace)");
  }
  return list.empty() ? "the port's table of GIDs is empty" : "the port has " + list;
}

const GidEntry* EntryAt(const std::vector<GidEntry>& gids, int index) {
  const auto entry = std::find_if(gids.begin(), gids.end(), [&](const GidEntry& candidate) {
    return candidate.index == index && !IsEmpty(candidate.gid);
  });
  return entry == gids.end() ? nullptr : &*entry;
}

Result<GidChoice> Configured(const std::vector<GidEntry>& gids, int index) {
  const GidEntry* entry = EntryAt(gids, index);
  if (entry == nullptr) {
    return Fail(
        ErrorCode::kInvalidArgument,
        "there is no GID at the configured index " + std::to_string(index) + ": " + Listed(gids),
        "configure one of these, or none to have it chosen");
  }
  if (entry->type == GidType::kRoceV1) {
    return Fail(ErrorCode::kInvalidArgument,
                "the GID at the configured index " + std::to_string(index) +
                    " is of RoCE v1, which peers do not answer: " + Listed(gids),
                "configure one of RoCE v2, or none to have it chosen");
  }
  return GidChoice{index, "configured: " + Described(*entry)};
}

bool CanBeUsed(const GidEntry& entry) {
  return entry.type == GidType::kRoceV2 && entry.is_here && !IsEmpty(entry.gid);
}

}  // namespace

bool InSubnetOf(const GidEntry& entry, const Gid& peer) {
  if (entry.prefix_length <= 0) return false;
  const size_t bits = entry.prefix_length + (IsIpv4(entry.gid) ? 8 * kIpv4At : 0);
  if (bits > 8 * peer.size()) return false;
  const size_t whole = bits / 8;
  if (!std::equal(peer.begin(), peer.begin() + whole, entry.gid.begin())) return false;
  return bits % 8 == 0 || (peer[whole] ^ entry.gid[whole]) >> (8 - bits % 8) == 0;
}

std::string TextOf(const Gid& gid) {
  char text[INET6_ADDRSTRLEN] = {};
  if (IsIpv4(gid)) {
    inet_ntop(AF_INET, gid.data() + kIpv4At, text, sizeof(text));
  } else {
    inet_ntop(AF_INET6, gid.data(), text, sizeof(text));
  }
  return text;
}

Result<GidChoice> ChooseGid(const std::vector<GidEntry>& gids, const GidWishes& wishes) {
  if (wishes.index >= 0) return Configured(gids, wishes.index);
  const GidEntry* first = EntryAt(gids, 0);
  if (first != nullptr && first->type == GidType::kInfiniBand) {
    return GidChoice{0, Described(*first)};
  }
  // A path between IPv4 and IPv6 does not exist.
  const auto answers = [&](const GidEntry& entry) {
    return !wishes.peer || IsIpv4(entry.gid) == IsIpv4(*wishes.peer);
  };
  const auto near_peer = [&](const GidEntry& entry) {
    return wishes.peer && InSubnetOf(entry, *wishes.peer);
  };
  const auto order = [&](const GidEntry& entry) {
    return std::make_tuple(!near_peer(entry), entry.gid != wishes.usual, IsLinkLocal(entry.gid),
                           !IsIpv4(entry.gid), entry.index);
  };
  const GidEntry* best = nullptr;
  for (const GidEntry& entry : gids) {
    if (!CanBeUsed(entry) || !answers(entry)) continue;
    if (best == nullptr || order(entry) < order(*best)) best = &entry;
  }
  if (best != nullptr) {
    return GidChoice{best->index,
                     Described(*best) + (near_peer(*best) ? ", in the peer's subnet" : "")};
  }
  if (std::any_of(gids.begin(), gids.end(), CanBeUsed)) {
    return Fail(
        ErrorCode::kPathUnavailable,
        "the peer's GID " + TextOf(*wishes.peer) +
            " is of the other version of IP than all that can be used here: " + Listed(gids),
        "give both interfaces addresses of the same version");
  }
  return Fail(ErrorCode::kPathUnavailable, "no GID can be used: " + Listed(gids),
              "give the NIC's interface, in this network namespace, an IPv4 or a global IPv6 "
              "address");
}

}  // namespace gantry::transport
