#include "sidecar/peer/identity/peer_admission.h"

#include <grpc/grpc_security_constants.h>
#include <grpcpp/security/auth_context.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sidecar/peer/identity/verified_identity.h"

namespace gantry::peer {
namespace {

std::string_view ViewOf(grpc::string_ref text) { return {text.data(), text.size()}; }

std::string Joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text.empty() ? "none" : text;
}

}  // namespace

Result<PeerGrant> PeerAdmission::Admit(const grpc::ServerContext& context) const {
  if (security_ == nullptr) return PeerGrant{};
  if (security_->has_token()) RETURN_IF_ERROR(CheckToken(context));
  if (security_->has_tls()) return GrantOf(context);
  return PeerGrant{};
}

Status PeerAdmission::CheckToken(const grpc::ServerContext& context) const {
  const auto [begin, end] = context.client_metadata().equal_range("authorization");
  if (begin == end) {
    count_(metrics::PeerRefusal::kTokenMissing);
    return Fail(ErrorCode::kUnauthenticated, "the call shows no token",
                "give the peer's sidecar the --peer-token-file of this trust domain");
  }
  if (std::next(begin) == end && security_->IsAuthorized(ViewOf(begin->second))) return {};
  count_(metrics::PeerRefusal::kTokenWrong);
  return Fail(ErrorCode::kUnauthenticated, "the call shows a token that is not taken here",
              "both sidecars need the same --peer-token-file; while it is being replaced the "
              "new file holds the old token on a second line");
}

Result<PeerGrant> PeerAdmission::GrantOf(const grpc::ServerContext& context) const {
  const auto caller = context.auth_context();
  // Set by the handshake with a certificate alone.
  if (caller == nullptr || caller->FindPropertyValues(GRPC_X509_PEM_CERT_PROPERTY_NAME).empty()) {
    count_(metrics::PeerRefusal::kCertificateMissing);
    return Fail(ErrorCode::kUnauthenticated, "the connection shows no certificate");
  }
  const std::shared_ptr<const PeerRules> rules = security_->rules();
  if (rules == nullptr) return PeerGrant{};
  const std::vector<std::string> names = CertificateNames(*caller);
  if (auto grant = rules->GrantFor(names)) return *std::move(grant);
  count_(metrics::PeerRefusal::kNameNotAllowed);
  return Fail(ErrorCode::kPermissionDenied,
              "no peer rule is about a name of the certificate: " + Joined(names),
              "add one to the owner's --peer-rules, which are read again by themselves");
}

}  // namespace gantry::peer
