// Why a peer's connection or call was refused. A closed set; plain values.
#pragma once

#include <array>
#include <string_view>

namespace gantry::metrics {

enum class PeerRefusal {
  kCertificateMissing,
  kCertificateExpired,
  kCertificateUntrusted,
  kNameNotAllowed,
  kTokenMissing,
  kTokenWrong,
};
inline constexpr std::array<std::string_view, 6> kPeerRefusalNames = {
    "certificate_missing", "certificate_expired", "certificate_untrusted",
    "name_not_allowed",    "token_missing",       "token_wrong"};

}  // namespace gantry::metrics
