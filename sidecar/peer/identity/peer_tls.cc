#include "sidecar/peer/identity/peer_tls.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_certificate_verifier.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include "lib/base/log.h"

namespace gantry::peer {
namespace {

namespace tls = grpc::experimental;

constexpr unsigned kLookAgainSeconds = 1;

std::string_view TextOf(grpc::string_ref text) { return {text.data(), text.size()}; }

metrics::PeerRefusal RefusalOf(CertificateFault fault) {
  switch (fault) {
    case CertificateFault::kMissing:
      return metrics::PeerRefusal::kCertificateMissing;
    case CertificateFault::kExpired:
      return metrics::PeerRefusal::kCertificateExpired;
    case CertificateFault::kUntrusted:
      break;
  }
  return metrics::PeerRefusal::kCertificateUntrusted;
}

// Checks the initiator's certificate at the end of the handshake, before a byte of a call is read.
// OpenSSL would do so within the handshake, but then nobody learns that, and why, one was refused.
class InitiatorVerifier final : public tls::ExternalCertificateVerifier {
 public:
  InitiatorVerifier(std::shared_ptr<const PeerSecurity> security, CountRefusal count)
      : security_(std::move(security)), count_(std::move(count)) {}

  bool Verify(tls::TlsCustomVerificationCheckRequest* request, std::function<void(grpc::Status)>,
              grpc::Status* status) override {
    CertificateFault fault = CertificateFault::kMissing;
    const Status checked = security_->trust()->CheckClient(
        TextOf(request->peer_cert()), TextOf(request->peer_cert_full_chain()), &fault);
    if (checked) {
      *status = grpc::Status::OK;
    } else {
      count_(RefusalOf(fault));
      log::Warning("a peer's connection was turned away", {{"error", checked.error()}});
      *status = {grpc::StatusCode::UNAUTHENTICATED, checked.error().message};
    }
    return true;
  }
  void Cancel(tls::TlsCustomVerificationCheckRequest*) override {}

 private:
  const std::shared_ptr<const PeerSecurity> security_;
  const CountRefusal count_;
};

bool EqualIgnoringCase(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](unsigned char x, unsigned char y) {
    return std::tolower(x) == std::tolower(y);
  });
}

// RFC 6125: a wildcard stands for the whole first label.
bool IsForHost(std::string_view name, std::string_view host) {
  if (!name.starts_with("*.")) return EqualIgnoringCase(name, host);
  const size_t dot = host.find('.');
  return dot != std::string_view::npos && dot != 0 &&
         EqualIgnoringCase(name.substr(1), host.substr(dot));
}

bool IsSameAddress(const std::string& a, const std::string& b) {
  unsigned char first[16] = {}, second[16] = {};
  for (const int family : {AF_INET, AF_INET6}) {
    if (::inet_pton(family, a.c_str(), first) == 1 && ::inet_pton(family, b.c_str(), second) == 1) {
      return std::equal(std::begin(first), std::end(first), std::begin(second));
    }
  }
  return false;
}

// Checks the owner's names, once OpenSSL has checked who signed them.
class OwnerVerifier final : public tls::ExternalCertificateVerifier {
 public:
  OwnerVerifier(std::string host, std::vector<std::string> patterns)
      : host_(std::move(host)), patterns_(std::move(patterns)) {}

  bool Verify(tls::TlsCustomVerificationCheckRequest* request, std::function<void(grpc::Status)>,
              grpc::Status* status) override {
    *status = IsExpected(*request)
                  ? grpc::Status::OK
                  : grpc::Status(grpc::StatusCode::UNAUTHENTICATED,
                                 "the peer's certificate is not for " +
                                     (patterns_.empty() ? host_ : "a name in --peer-tls-names"));
    return true;
  }
  void Cancel(tls::TlsCustomVerificationCheckRequest*) override {}

 private:
  bool IsExpected(tls::TlsCustomVerificationCheckRequest& request) const {
    if (patterns_.empty()) {
      for (const grpc::string_ref& name : request.dns_names()) {
        if (IsForHost(TextOf(name), host_)) return true;
      }
      for (const grpc::string_ref& name : request.ip_names()) {
        if (IsSameAddress(std::string(TextOf(name)), host_)) return true;
      }
      return false;
    }
    for (const auto& names : {request.uri_names(), request.dns_names(), request.ip_names()}) {
      for (const grpc::string_ref& name : names) {
        for (const std::string& pattern : patterns_) {
          if (MatchesPattern(pattern, TextOf(name))) return true;
        }
      }
    }
    return false;
  }

  const std::string host_;
  const std::vector<std::string> patterns_;
};

Result<UniqueFd> InMemory(const TlsMaterial& material) {
  UniqueFd file(::memfd_create("gantry-peer-tls", MFD_CLOEXEC));
  if (!file.valid()) return Fail(SystemError(ErrorCode::kInternal, "memfd_create", errno));
  const std::string text = material.certificate + "\n" + material.key;
  const ssize_t written = ::write(file.get(), text.data(), text.size());
  if (written == static_cast<ssize_t>(text.size())) return file;
  return Fail(SystemError(ErrorCode::kInternal, "write to a memfd", errno));
}

}  // namespace

Result<std::unique_ptr<ServerTls>> ServerTls::Make(std::shared_ptr<const PeerSecurity> security,
                                                   CountRefusal count) {
  std::unique_ptr<ServerTls> server(new ServerTls(security));
  RETURN_IF_ERROR(server->Update());
  const std::string path = "/proc/self/fd/" + std::to_string(server->file_.get());
  tls::TlsServerCredentialsOptions options(
      std::make_shared<tls::FileWatcherCertificateProvider>(path, path, kLookAgainSeconds));
  options.watch_identity_key_cert_pairs();
  options.set_cert_request_type(GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_BUT_DONT_VERIFY);
  options.set_certificate_verifier(tls::ExternalCertificateVerifier::Create<InitiatorVerifier>(
      std::move(security), std::move(count)));
  server->credentials_ = tls::TlsServerCredentials(options);
  if (server->credentials_ != nullptr) return server;
  return Fail(ErrorCode::kInternal, "gRPC does not take the TLS options");
}

// gRPC is given one file that changes at once and always holds a pair that was seen to work; the
// files that an operator replaces may do neither.
Status ServerTls::Update() {
  std::shared_ptr<const TlsMaterial> now = security_->tls();
  if (now == given_) return {};
  ASSIGN_OR_RETURN(UniqueFd file, InMemory(*now));
  if (!file_.valid()) {
    file_ = std::move(file);
  } else if (::dup3(file.get(), file_.get(), O_CLOEXEC) < 0) {
    return Fail(SystemError(ErrorCode::kInternal, "dup3", errno));
  }
  given_ = std::move(now);
  return {};
}

std::shared_ptr<grpc::ChannelCredentials> ChannelTls(const PeerSecurity& security,
                                                     const std::string& host) {
  const std::shared_ptr<const TlsMaterial> material = security.tls();
  tls::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(std::make_shared<tls::StaticDataCertificateProvider>(
      material->authorities,
      std::vector<tls::IdentityKeyCertPair>{{material->key, material->certificate}}));
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  options.set_verify_server_certs(true);
  options.set_check_call_host(false);  // the verifier checks the connection, once
  options.set_certificate_verifier(
      tls::ExternalCertificateVerifier::Create<OwnerVerifier>(host, security.names()));
  return tls::TlsCredentials(options);
}

}  // namespace gantry::peer
