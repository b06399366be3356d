#include "sidecar/peer/identity/data_tls.h"

#include <utility>

#include "lib/base/log.h"

namespace gantry::peer {
namespace {

transport::TlsIdentity IdentityOf(const TlsMaterial& material) {
  return {material.certificate, material.key, material.authorities};
}

}  // namespace

Result<std::unique_ptr<DataTls>> DataTls::Make(std::shared_ptr<const PeerSecurity> security) {
  auto material = security->tls();
  ASSIGN_OR_RETURN(auto tls, transport::TlsSecurity::Create(IdentityOf(*material)));
  return std::unique_ptr<DataTls>(
      new DataTls(std::move(security), std::move(material), std::move(tls)));
}

DataTls::DataTls(std::shared_ptr<const PeerSecurity> security,
                 std::shared_ptr<const TlsMaterial> used,
                 std::unique_ptr<transport::TlsSecurity> tls)
    : security_(std::move(security)), tls_(std::move(tls)), used_(std::move(used)) {}

transport::TlsSecurity& DataTls::Current() {
  const MutexLock lock(mutex_);
  auto material = security_->tls();  // under the lock: an older one must not follow a newer one
  if (material == used_) return *tls_;
  if (Status updated = tls_->Update(IdentityOf(*material)); !updated) {
    log::Error("data connections keep the old certificate", {{"error", updated.error()}});
  }
  used_ = std::move(material);
  return *tls_;
}

Result<std::unique_ptr<transport::SocketChannel>> DataTls::Accept(UniqueFd socket) {
  return Current().Accept(std::move(socket));
}

Result<std::unique_ptr<transport::SocketChannel>> DataTls::Connect(UniqueFd socket,
                                                                   std::string certificate_sha256) {
  return Current().Connect(std::move(socket), std::move(certificate_sha256));
}

Result<std::string> DataTls::CertificateSha256() { return Current().CertificateSha256(); }

}  // namespace gantry::peer
