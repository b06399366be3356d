#include "sidecar/peer/identity/verified_identity.h"

#include <grpc/grpc_security_constants.h>

#include <algorithm>

namespace gantry::peer {

std::vector<std::string> CertificateNames(const grpc::AuthContext& other) {
  std::vector<std::string> names;
  for (const char* kind :
       {GRPC_PEER_URI_PROPERTY_NAME, GRPC_PEER_DNS_PROPERTY_NAME, GRPC_PEER_IP_PROPERTY_NAME}) {
    for (const grpc::string_ref& name : other.FindPropertyValues(kind)) {
      names.emplace_back(name.data(), name.size());
    }
  }
  return names;
}

std::string VerifiedIdentity(const grpc::AuthContext* other, bool over_tcp) {
  if (!over_tcp) return "node";
  if (other == nullptr) return "tcp";
  const auto certificates = other->FindPropertyValues(GRPC_X509_PEM_CERT_PROPERTY_NAME);
  if (certificates.empty()) return "tcp";
  std::vector<std::string> names = CertificateNames(*other);
  // One without names is known by itself.
  if (names.empty()) names.emplace_back(certificates[0].data(), certificates[0].size());
  std::sort(names.begin(), names.end());
  std::string identity = "certificate";
  for (const std::string& name : names) identity += "\n" + name;
  return identity;
}

}  // namespace gantry::peer
